// A picture with axes, and the figure around it: title, how to read it, legend, data as a table.

/** A shape a ZeRO stage, so that colour is not all that tells them apart. */
const SHAPES = [
  (x, y, r) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${- 2 * r} 0z`,
  (x, y, r) => `M${x - r * 0.9} ${y - r * 0.9}h${1.8 * r}v${1.8 * r}h${- 1.8 * r}z`,
  (x, y, r) => `M${x} ${y - 1.15 * r}L${x + 1.1 * r} ${y + 0.8 * r}H${x - 1.1 * r}z`,
  (x, y, r) => `M${x} ${y - 1.3 * r}L${x + 1.3 * r} ${y}L${x} ${y + 1.3 * r}L${x - 1.3 * r} ${y}z`,
];
const stageOf = member => (SHAPES[member.stage] ? member.stage : 0);
const round = value => Math.round(value * 10) / 10;
const shape = (stage, x, y, r) => SHAPES[stage](round(x), round(y), r);

/** Round numbers from `least` to `most`, about `wanted` of them. */
function ticks(least, most, wanted = 5) {
  const rough = (most - least) / wanted || 1;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find(factor => factor * power >= rough * 0.999);
  const list = [];
  for (let at = Math.ceil(least / step - 1e-9); at * step <= most + 1e-9 * step; ++at)
    list.push(at * step);
  return list;
}

const linear = (from, to, low, high) => value =>
    low + ((value - from) / (to - from || 1)) * (high - low);

class Plot {
  constructor(width, height, {left = 58, right = 16, top = 16, bottom = 44} = {}) {
    Object.assign(
        this, {width, height, left, right: width - right, top, bottom: height - bottom, tips: []});
    this.root = svgEl('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img'});
  }

  add(tag, attributes, ...children) {
    const element = svgEl(tag, attributes, ...children);
    this.root.append(element);
    return element;
  }
  text(x, y, text, anchor = 'middle', style = null) {
    return this.add('text', {x: round(x), y: round(y), 'text-anchor': anchor, class: style}, text);
  }
  line(x1, y1, x2, y2, style) {
    this.add('line', {x1: round(x1), y1: round(y1), x2: round(x2), y2: round(y2), class: style});
  }
  path(d, style) {
    if (d) this.add('path', {d, class: style});
  }
  /** Marks of one style as one path: thousands of them cost little. */
  marks(points, style, r = 4.5) {
    this.path(points.map(({x, y, stage}) => shape(stage ?? 0, x, y, r)).join(''), style);
  }
  /** A text that is shown while the pointer is near. */
  tip(x, y, text) { this.tips.push({x, y, text}); }

  /** An axis upwards from 0, with its grid; returns where a value is. */
  upwards(most, title, show = number) {
    const list = ticks(0, most > 0 ? most * 1.02 : 1);
    const at = linear(0, Math.max(list.at(-1), most * 1.04 || 1), this.bottom, this.top);
    for (const tick of list) {
      this.line(this.left, at(tick), this.right, at(tick), 'grid');
      this.text(this.left - 6, at(tick) + 4, show(tick), 'end');
    }
    this.text(this.left - 50, 12, title, 'start', 'axis');
    return at;
  }
  /** An axis to the right. */
  rightwards(least, most, title, show = number) {
    const list = ticks(least, most, Math.max(2, Math.min(7, (this.right - this.left) / 80)));
    const at = linear(least, most, this.left, this.right);
    for (const tick of list) this.text(at(tick), this.bottom + 16, show(tick));
    this.title(title);
    return at;
  }
  title(text) { this.text((this.left + this.right) / 2, this.height - 6, text, 'middle', 'axis'); }
}

const MEMORY_UNITS = [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10], ['bytes', 1]];
/** The unit that suits an axis of memory. */
const memoryUnit = most => MEMORY_UNITS.find(([, size]) => most >= 2 * size) ?? MEMORY_UNITS.at(-1);

/** A legend's entry: a small picture and its words. */
function legendEntry(words, style, d = shape(0, 7, 7, 5), children = []) {
  const picture = svgEl(
      'svg', {viewBox: '0 0 14 14', width: 14, height: 14, 'aria-hidden': 'true'},
      svgEl('path', {d, class: style}), children);
  return el('li', {}, picture, words);
}
const stageLegend = stages => [...new Set(stages)].sort().map(
    stage => legendEntry(`ZeRO ${stage}`, `s${stage}`, shape(stage, 7, 7, 5)));

/** Shows the text of the nearest point. */
function followPointer(region, plot) {
  const tip = el('div', {class: 'tip', hidden: true});
  region.append(tip);
  const leave = () => {
    tip.hidden = true;
  };
  region.onpointerleave = leave;
  region.onpointermove = event => {
    const box = plot.root.getBoundingClientRect();
    const scale = plot.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    let best = null, least = 24 ** 2;
    for (const one of plot.tips) {
      const distance = (one.x - x) ** 2 + (one.y - y) ** 2;
      if (distance < least) [best, least] = [one, distance];
    }
    if (!best) return leave();
    tip.textContent = best.text;
    tip.hidden = false;
    const room = region.clientWidth - tip.offsetWidth - 4;
    tip.style.left = `${Math.max(4, Math.min(room, best.x / scale + 10))}px`;
    tip.style.top = `${Math.max(2, best.y / scale - tip.offsetHeight - 8)}px`;
  };
}

const redrawing = new ResizeObserver(entries => {
  for (const {target} of entries) target.redraw();
});

/**
 * how: a sentence that tells how to read it; says: a sentence with what it shows, for those who do
 * not see it; draw: makes the Plot for a width; data: [columns, rows] of its table.
 */
function figure({id, title, how, says, legend = [], draw, data, controls, isWide = false}) {
  const region = scrolling(`Figure: ${title}`, 'plot');
  let drawn = 0;
  region.redraw = () => {
    const width = Math.max(280, Math.floor(region.clientWidth));
    if (!region.clientWidth || Math.abs(width - drawn) < 4) return;
    drawn = width;
    const plot = draw(width);
    plot.root.setAttribute('aria-label', `${title}. ${says}`);
    region.replaceChildren(plot.root);
    followPointer(region, plot);
  };
  redrawing.observe(region);
  const part = section(
      id, title,
      el('figure', {}, el('figcaption', {}, how), controls ?? null,
         legend.length ? el('ul', {class: 'legend'}, legend) : null, region,
         data ? folded('The figure as a table', () => {
           const [columns, rows] = data();
           return scrolling(`Table: ${title}`, '', table(columns, rows));
         }, {class: 'as-table'}) : null));
  if (isWide) part.classList.add('wide');
  return part;
}
