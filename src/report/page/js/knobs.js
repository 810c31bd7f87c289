// The effect of each knob, and the best values of two knobs together.

/** Keys that are chosen, by their places; those that follow from others are none. */
const knobs =
    report.keys.map((key, place) => ({...key, place}))
        .filter(
            key => !key.is_derived &&
                key.values.length + (members.some(one => one.keys[key.place] === null) ? 1 : 0) >
                    1);

/** "not set" stands for a member that does not have the key. */
const valueText = (knob, index) =>
    (index === null || index === undefined ? 'not set' : plain(knob.values[index]));

/**
 * Members that differ in this knob alone: a map from all other knobs' values to a list of members.
 * The values of a member are one number where they fit, a text elsewhere.
 */
function alikeBut(knob) {
  const sizes = knobs.map(one => one.values.length + 1);
  const fits = sizes.reduce((product, size) => product * size, 1) < Number.MAX_SAFE_INTEGER;
  const groups = new Map();
  for (const member of withValue) {
    let id = fits ? 0 : '';
    knobs.forEach((one, i) => {
      if (one.place === knob.place) return;
      const index = member.keys[one.place] ?? -1;
      id = fits ? id * sizes[i] + index + 1 : `${id}${index},`;
    });
    const group = groups.get(id);
    if (group)
      group.push(member);
    else
      groups.set(id, [member]);
  }
  return groups;
}

/** For each value of the knob: its ratios to other values, all other knobs equal, in order. */
function effectOf(knob) {
  const ratios = new Map();
  for (const group of alikeBut(knob).values())
    for (const one of group)
      for (const other of group) {
        const index = one.keys[knob.place] ?? null;
        if (index === (other.keys[knob.place] ?? null) || !(one.value > 0) || !(other.value > 0))
          continue;
        if (!ratios.has(index)) ratios.set(index, []);
        ratios.get(index).push(metric.ratio(one.value, other.value));
      }
  const values = [...ratios].map(([index, list]) => {
    list.sort((one, other) => one - other);
    return {
      index,
      text: valueText(knob, index),
      pairs: list.length,
      middle: median(list),
      low: quantile(list, 0.25),
      high: quantile(list, 0.75)
    };
  });
  values.sort((one, other) => (one.index ?? -1) - (other.index ?? -1));
  const middles = values.map(one => one.middle);
  return {knob, values, size: values.length ? Math.max(...middles) / Math.min(...middles) : 0};
}

const RATIO_TICKS = [
  0.01, 0.02, 0.05, 0.1, 0.2, 0.33, 0.5, 0.67, 0.8, 0.9, 0.95, 1,
  1.05, 1.1,  1.25, 1.5, 2,   3,    5,   10,   20,  50,  100
];

function ratioAxis(plot, least, most) {
  const at = ratio =>
      linear(Math.log(least), Math.log(most), plot.left, plot.right)(Math.log(ratio));
  const taken = [];
  const inside = RATIO_TICKS.filter(tick => tick >= least && tick <= most)
                     .sort((one, other) => Math.abs(Math.log(one)) - Math.abs(Math.log(other)));
  for (const tick of inside) {
    const x = at(tick);
    if (taken.some(other => Math.abs(other - x) < 38)) continue;
    taken.push(x);
    plot.line(x, plot.top, x, plot.bottom, tick === 1 ? 'equal' : 'grid');
    plot.text(x, plot.bottom + 16, `×${tick}`);
  }
  return at;
}

/** The effects of all knobs, the largest first. */
const effectsInOrder = () => knobs.map(effectOf).sort((one, other) => other.size - one.size);

function effects(inOrder) {
  const MOST_KNOBS = 10, MOST_VALUES = 12;
  const all = inOrder.filter(effect => effect.values.length > 1);
  if (!all.length) return null;
  const shown = all.slice(0, MOST_KNOBS)
                    .map(effect => ({...effect, values: effect.values.slice(0, MOST_VALUES)}));
  const rows = shown.flatMap(({knob, values}) => [{title: knob.label}, ...values]);
  const least = Math.min(...rows.map(row => row.low ?? 1)) / 1.05;
  const most = Math.max(...rows.map(row => row.high ?? 1)) * 1.05;
  const [first] = all;
  const top = first.values.reduce((one, other) => (other.middle > one.middle ? other : one));
  const draw = width => {
    const ROW = 22;
    const plot = new Plot(
        width, rows.length * ROW + 62, {left: Math.min(190, width * 0.3), right: 78, top: 14});
    const x = ratioAxis(plot, least, most);
    plot.title('times as good as another value, all other knobs equal');
    plot.text(width - 6, plot.top - 2, 'pairs', 'end', 'faint');
    rows.forEach((row, i) => {
      const y = plot.top + ROW * (i + 0.5);
      if (row.title !== undefined) {
        plot.text(4, y + 5, fitted(row.title, width - 90), 'start', 'label');
        return;
      }
      plot.text(plot.left - 8, y + 4, fitted(row.text, plot.left - 12), 'end');
      plot.line(x(row.low), y, x(row.high), y, 'quartiles');
      plot.marks([{x: x(row.middle), y}], 's0', 5);
      plot.text(width - 6, y + 4, number(row.pairs), 'end', 'faint');
      plot.tip(
          x(row.middle), y,
          `${row.text}: ×${number(row.middle)}, half between ×${number(row.low)} and ×${
              number(row.high)}, ` +
              count(row.pairs, 'pair'));
    });
    return plot;
  };
  const left = all.length - shown.length;
  return figure({
    id: 'knobs',
    title: 'Effect of each knob',
    draw,
    isWide: true,
    how: 'A point is the median over all pairs of members that differ in this knob alone. ' +
        'Half of the pairs lie on the thick line. ' +
        'Right of ×1 the value is better than the others. The largest effect comes first.' +
        (left > 0 ? ` ${count(left, 'further knob')} ${left === 1 ? 'is' : 'are'} in the table.` :
                    ''),
    says: `The knob with the largest effect is ${first.knob.label}: ${top.text} is ×${
        number(top.middle)} by the median.`,
    data: () => [
        [
          {title: 'Knob'}, {title: 'Value'}, {title: 'Median', isNumber: true},
          {title: 'Lower quartile', isNumber: true}, {title: 'Upper quartile', isNumber: true},
          {title: 'Pairs', isNumber: true}
        ],
        all.flatMap(
            ({knob, values}) => values.map(
                one =>
                    [knob.label, one.text, `×${number(one.middle)}`, `×${number(one.low)}`,
                     `×${number(one.high)}`, number(one.pairs)]))],
  });
}

/** The grid of best values of two knobs: a table whose cells are shaded. */
function grid(down, across) {
  const MOST = 24;
  const cells = new Map();
  for (const member of members) {
    const id = `${member.keys[down.place] ?? null}/${member.keys[across.place] ?? null}`;
    const cell = cells.get(id) ?? {best: null, bad: 0};
    if (member.value !== null && (!cell.best || metric.isBetter(member.value, cell.best.value)))
      cell.best = member;
    if (statusOf(member.status).isBad || member.status === 'infeasible') ++cell.bad;
    cells.set(id, cell);
  }
  const indices = knob =>
      [...(members.some(one => (one.keys[knob.place] ?? null) === null) ? [null] : []),
       ...knob.values.keys()];
  const [rows, columns] = [indices(down).slice(0, MOST), indices(across).slice(0, MOST)];
  const values = [...cells.values()].filter(cell => cell.best).map(cell => cell.best.value);
  const worst = values.length ?
      values.reduce((one, other) => (metric.isBetter(one, other) ? other : one)) :
      0;
  const best = values.length ?
      values.reduce((one, other) => (metric.isBetter(one, other) ? one : other)) :
      0;
  const cellOf = (row, column) => {
    const cell = cells.get(`${row}/${column}`);
    if (!cell?.best)
      return el(
          'td', {class: 'number faint'}, cell?.bad ? '✕' : '–',
          el('span', {class: 'unseen'}, cell?.bad ? ' no result' : ' not run'));
    const share = best === worst ? 1 : (cell.best.value - worst) / (best - worst);
    const isBest = cell.best.value === best;
    const element =
        el('td', {class: isBest ? 'number best' : 'number', title: cell.best.name},
           isBest ? '★ ' : '', number(cell.best.value));
    element.style.setProperty('--share', `${Math.round(share * 38)}%`);
    return element;
  };
  return el(
      'table', {class: 'grid'},
      el('caption', {class: 'unseen'},
         `Best ${metricTitle()} by ${down.label} and ${across.label}`),
      el('thead', {},
         el('tr', {}, el('th', {scope: 'col'}, breakable(`${down.label} ↓  ${across.label} →`)),
            columns.map(
                column =>
                    el('th', {scope: 'col', class: 'number'},
                       shortened(valueText(across, column), 40))))),
      el('tbody', {},
         rows.map(
             row =>
                 el('tr', {}, el('th', {scope: 'row'}, shortened(valueText(down, row), 60)),
                    columns.map(column => cellOf(row, column))))));
}

function pairsOfKnobs(inOrder) {
  if (knobs.length < 2 || withValue.length < 2) return null;
  const region = scrolling('Grid: best values of two knobs', 'low');
  const choose = (name, chosen) => {
    const id = newId('knob');
    const list =
        el('select', {id},
           knobs.map((knob, i) => el('option', {value: i}, shortened(knob.label, 60))));
    list.value = String(knobs.indexOf(inOrder[chosen].knob));
    list.addEventListener('change', show);
    return {
      list,
      shown:
          el('span', {class: 'field'},
             el('label',
                { for: id
                },
                name),
             list)
    };
  };
  const down = choose('Rows', 0);
  const across = choose('Columns', 1);
  function show() {
    region.replaceChildren(grid(knobs[down.list.value], knobs[across.list.value]));
  }
  show();
  return section(
      'pairs', 'Two knobs together',
      el('p', {class: 'note'},
         `Each cell is the best ${metricTitle()} with these two values. ${
             better()} Darker is better, ★ is the best, ✕ gave no result, – was not run.`),
      el('p', {class: 'fields'}, down.shown, across.shown), region);
}
