// Figures of memory: of the best members, and of the answer over one step.

/** Categories have a number beside their colour, which is in the picture, too. */
const categoryStyle = place => `c${place % 8}`;
const categoryLegend = (names, isUsed = () => true) => names.flatMap(
    (name, place) => isUsed(place) ?
        [legendEntry(
            `${place + 1} ${name.replaceAll('_', ' ')}`, categoryStyle(place), 'M0 0h14v14h-14z')] :
        []);

function memoryOfBest() {
  const categories = report.memory_categories;
  const rows = report.memory_of
                   .map(([index, ...sizes]) => ({
                          member: members[index],
                          sizes,
                          total: sizes.reduce((sum, size) => sum + (size ?? 0), 0)
                        }))
                   .filter(row => row.member && row.total > 0);
  if (!rows.length) return null;
  const limit = report.memory_limit_bytes;
  const most = withLimit(largest(rows, row => row.total), limit);
  const isLimitShown = limit && limit <= most;
  const [unit, size] = memoryUnit(most);
  const draw = width => {
    const ROW = 24;
    const plot = new Plot(
        width, rows.length * ROW + 64, {left: Math.min(240, width * 0.34), top: 20, right: 24});
    const x = plot.rightwards(0, (most / size) * 1.04, `memory of the fullest rank, ${unit}`);
    rows.forEach((row, i) => {
      const y = plot.top + i * ROW;
      plot.text(plot.left - 8, y + 16, fitted(row.member.name, plot.left - 12), 'end');
      let from = 0;
      row.sizes.forEach((bytesOf, place) => {
        const [left, right] = [x(from / size), x((from + (bytesOf ?? 0)) / size)];
        from += bytesOf ?? 0;
        if (right - left < 0.3) return;
        plot.add('rect', {
          x: round(left),
          y: y + 3,
          width: Math.max(0.5, round(right - left - 0.5)),
          height: ROW - 6,
          class: categoryStyle(place)
        });
        if (right - left > 14)
          plot.text((left + right) / 2, y + 16, String(place + 1), 'middle', 'on');
      });
      plot.tip(
          x(row.total / size), y + ROW / 2,
          `${row.member.name}: ${bytes(row.total)}; ` +
              row.sizes.map((one, place) => [one, place])
                  .filter(([one]) => one > 0)
                  .map(([one, place]) => `${categories[place].replaceAll('_', ' ')} ${bytes(one)}`)
                  .join(', '));
    });
    if (isLimitShown)
      limitLine(
          plot, x(limit / size), plot.top - 4, x(limit / size), plot.bottom,
          `limit ${bytes(limit)}`);
    return plot;
  };
  const [first] = rows;
  return figure({
    id: 'memory',
    title: 'Memory of the best members',
    draw,
    legend: categoryLegend(categories),
    how: 'Measured, by category, the best first. Numbers name the categories. ' +
        limitNote(limit, isLimitShown),
    says: `${first.member.name} takes ${bytes(first.total)}${limit ? ` of ${bytes(limit)}` : ''}.`,
    data: () => [
        [
          {title: 'Member'}, {title: 'Total', isNumber: true},
          ...categories.map(title => ({title: title.replaceAll('_', ' '), isNumber: true}))
        ],
        rows.map(row => [row.member.name, bytes(row.total), ...row.sizes.map(bytes)])],
  });
}

/** The end of an axis of memory. A limit far above would leave nothing to see of the rest. */
const withLimit = (most, limit) => (limit && limit < 4 * most ? Math.max(most, limit) : most);

const limitNote = (limit, isShown) => {
  if (!limit) return '';
  return isShown ? `The dashed line is the limit of a device, ${bytes(limit)}.` :
                   `The limit of a device, ${bytes(limit)}, is far above and not drawn.`;
};

function limitLine(plot, x1, y1, x2, y2, text) {
  plot.line(x1, y1, x2, y2, 'limit');
  const half = textWidth(text) / 2;
  const isUpright = x1 === x2;
  plot.text(
      Math.min(isUpright ? x1 : x2 - half, plot.right + 20 - half), y1 - 4, text, 'middle',
      'label');
}

/** A column of the picture is the fullest instant of its stretch, so that peaks show. */
function fullest(points, columns) {
  if (points.length <= columns) return points;
  const [begin, end] = [points[0].at, points.at(-1).at];
  const best = new Map();
  for (const point of points) {
    const column = Math.floor(((point.at - begin) / (end - begin || 1)) * columns);
    if (!best.has(column) || point.total > best.get(column).total) best.set(column, point);
  }
  return [...best.values()];
}

const partName = ([, name, phase]) => (phase ? `${name}, ${phase}` : name);

/** The beginnings of a step's parts, named below the axis where there is room. */
function partsAxis(plot, parts, x) {
  let free = plot.left - 20;
  for (const part of parts) {
    const at = x(part[0]);
    plot.line(at, plot.top, at, plot.bottom + 5, 'part');
    const text = partName(part);
    if (at < free || at + textWidth(text) > plot.right + 14) continue;
    plot.text(at, plot.bottom + 18, text, 'start');
    free = at + textWidth(text) + 8;
  }
}

/** Bands on each other: what is held stays until the next point. */
function bands(plot, shown, end, numCategories, x, y) {
  const below = shown.map(() => 0);
  for (let place = 0; place < numCategories; ++place) {
    const before = [...below];
    shown.forEach((point, i) => {
      below[i] += point.sizes[place];
    });
    const edge = heights => heights.flatMap(
        (height, i) => [
            [x(shown[i].at), y(height)],
            [x(i + 1 < shown.length ? shown[i + 1].at : end), y(height)],
    ]);
    const outline = [...edge(below), ...edge(before).reverse()];
    plot.path(
        `M${outline.map(([left, up]) => `${round(left)} ${round(up)}`).join('L')}z`,
        categoryStyle(place));
  }
}

/** A memory of the answer over a step; limit: of the memory, null where none is known. */
function memoryOverStep({id, title, list, limit}) {
  if (!list || list.length < 2) return null;
  const {memory} = answer;
  const points = list.map(
      ([at, ...sizes]) => ({at, sizes, total: sizes.reduce((sum, size) => sum + size, 0)}));
  const peak = points.reduce((one, other) => (other.total > one.total ? other : one));
  const most = withLimit(peak.total, limit);
  const isLimitShown = limit && limit <= most;
  const [unit, size] = memoryUnit(most);
  const end = Math.max(memory.num_operations ?? 0, points.at(-1).at);
  const parts = memory.parts ?? [];
  const atPeak = parts.filter(([first]) => first <= peak.at).at(-1);
  const where = atPeak ? ` in ${partName(atPeak)}` : '';
  const draw = width => {
    const plot = new Plot(width, 330, {top: 26, bottom: 50});
    const y = plot.upwards(most / size, `memory of a rank, ${unit}`);
    const x = linear(points[0].at, end, plot.left, plot.right);
    const height = total => y(total / size);
    const shown = fullest(points, plot.right - plot.left);
    bands(plot, shown, end, memory.categories.length, x, height);
    partsAxis(plot, parts, x);
    plot.title(memory.axis ?? 'operations of a step, in program order');
    numberBands(plot, memory.categories, shown, point => x(point.at), height);
    if (isLimitShown)
      limitLine(plot, plot.left, height(limit), plot.right, height(limit), `limit ${bytes(limit)}`);
    plot.tip(x(peak.at), height(peak.total), `fullest: ${bytes(peak.total)}${where}`);
    return plot;
  };
  return figure({
    id,
    title,
    draw,
    isWide: true,
    legend: categoryLegend(memory.categories, place => points.some(one => one.sizes[place] > 0)),
    how: 'Planned for a rank: bands of categories on each other. ' +
        `The upper edge is all that is held at that time. ${limitNote(limit, isLimitShown)}`,
    says: `At its fullest ${bytes(peak.total)}${where}` +
        `${limit ? `; the limit is ${bytes(limit)}` : ''}.`,
    data: () => {
      const columns =
          ['At the fullest instant', 'At most'].map(one => ({title: one, isNumber: true}));
      const rows = memory.categories.map(
          (name, place) =>
              [name.replaceAll('_', ' '),
               bytes(peak.sizes[place]) || '0',
               bytes(largest(points, point => point.sizes[place])) || '0',
      ]);
      return [
        [{title: 'Category'}, ...columns],
        [...rows, ['all', bytes(peak.total), bytes(peak.total)]],
      ];
    },
  });
}

/** The answer's memory on the device, and on the host where something is there. */
const answerMemories = () => (!answer?.memory ? [] : [
  memoryOverStep({
    id: 'memory-step',
    title: 'Memory of the answer over one step',
    list: answer.memory.points,
    limit: answer.memory.limit_bytes,
  }),
  memoryOverStep({
    id: 'host-memory-step',
    title: 'Host memory of the answer over one step',
    list: answer.memory.host_points,
    limit: null,
  }),
]);

/** Puts each category's number where its band is highest. */
function numberBands(plot, categories, shown, x, y) {
  categories.forEach((_, place) => {
    const best =
        shown.reduce((one, other) => (other.sizes[place] > one.sizes[place] ? other : one));
    const below = best.sizes.slice(0, place).reduce((sum, size) => sum + size, 0);
    const [low, high] = [y(below), y(below + best.sizes[place])];
    if (low - high < 13) return;
    const left = Math.min(Math.max(x(best) + 8, plot.left + 8), plot.right - 8);
    plot.text(left, (low + high) / 2 + 4, String(place + 1), 'middle', 'on');
  });
}
