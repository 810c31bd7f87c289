// The front: members that nothing beats in value, memory and GPUs at once.

/** The indices of up to `most` points: the first, then always the one farthest from those taken. */
function spread(points, most) {
  const taken = [0];
  const distance = points.map(point => Math.hypot(point.x - points[0].x, point.y - points[0].y));
  while (taken.length < Math.min(most, points.length)) {
    const next = distance.indexOf(Math.max(...distance));
    taken.push(next);
    points.forEach((point, i) => {
      distance[i] =
          Math.min(distance[i], Math.hypot(point.x - points[next].x, point.y - points[next].y));
    });
  }
  return taken;
}

const overlaps = (one, other) => one.x < other.x + other.w && other.x < one.x + one.w &&
    one.y < other.y + other.h && other.y < one.y + one.h;

/** A free place for a text beside a point, as {x, y, w, h}; null where there is none. */
function placeBeside(plot, point, text, taken) {
  // Labels are bold, and so wider.
  const [w, h] = [1.13 * textWidth(text) + 4, 15];
  for (const far of [8, 16, 28])
    for (const [dx, dy] of [
             [far, -h - 2], [-far - w, -h - 2], [far, 2], [-far - w, 2], [-w / 2, -h - far],
             [-w / 2, far]]) {
      const box = {x: point.x + dx, y: point.y + dy, w, h};
      const isInside = box.x >= plot.left && box.x + w <= plot.right + 8 && box.y >= plot.top - 8 &&
          box.y + h <= plot.bottom;
      if (isInside && !taken.some(other => overlaps(box, other))) return box;
    }
  return null;
}

/** Labels that do not overlap: names of the best and of spread points, numbers of others. */
function label(plot, points, lines) {
  const taken = points.map(({x, y}) => ({x: x - 6, y: y - 6, w: 12, h: 12}));
  for (const line of lines)
    line.slice(1).forEach((to, i) => {
      const from = line[i];
      const steps = Math.ceil(Math.hypot(to.x - from.x, to.y - from.y) / 8);
      for (let step = 1; step < steps; ++step)
        taken.push({
          x: from.x + ((to.x - from.x) * step) / steps - 2,
          y: from.y + ((to.y - from.y) * step) / steps - 2,
          w: 4,
          h: 4
        });
    });
  const named = spread(points, Math.max(2, Math.floor(plot.width / 130)));
  const most = Math.max(90, plot.width / 4);
  const put = (point, text) => {
    const box = placeBeside(plot, point, text, taken);
    if (!box) return false;
    taken.push(box);
    plot.text(box.x + 2, box.y + 12, text, 'start', 'label');
    return true;
  };
  for (const i of named)
    points[i].isLabelled = put(points[i], fitted(`${i + 1}: ${points[i].member.name}`, most));
  points.forEach((point, i) => {
    if (!point.isLabelled) put(point, String(i + 1));
  });
}

function front() {
  const offers = report.front
                     .map(([member, value, gpus, memory, isOnFront, perGpu]) => ({
                            member: members[member],
                            value: metric.toShown(value),
                            gpus,
                            memory,
                            isOnFront,
                            perGpu
                          }))
                     .filter(one => one.member && one.value !== null && one.memory > 0);
  const best = offers.filter(one => one.isOnFront)
                   .sort(
                       (one, other) => (
                           metric.isMinimised ? one.value - other.value : other.value - one.value));
  if (!best.length || offers.length < 2) return null;
  if (best.length === 1)
    return section(
        'front', 'Fewer GPUs or less memory',
        el('p', {},
           'Nothing is to be had for less: ' +
               'the best takes as few GPUs and as little memory as any that was measured.'));
  const [unit, size] = memoryUnit(largest(offers, one => one.memory));
  const sizes = [...new Set(best.map(one => one.gpus))].sort((one, other) => one - other);
  const dashes = gpus => `front d${sizes.indexOf(gpus) % 4}`;
  const says = one => `${one.member.name}: ${withUnit(one.value)}, ${bytes(one.memory)} a rank, ${
      count(one.gpus, 'GPU')}`;
  const draw = width => {
    const plot = new Plot(width, 360, {top: 24});
    const y = plot.upwards(largest(offers, one => one.value), metricTitle());
    const x = plot.rightwards(
        0, (largest(offers, one => one.memory) / size) * 1.05,
        `memory of the fullest rank, ${unit}`);
    const at = one => (
        {x: x(one.memory / size), y: y(one.value), stage: stageOf(one.member), member: one.member});
    plot.marks(
        thinned(offers.filter(one => !one.isOnFront)).map(one => ({...at(one), stage: 0})),
        'beaten', 2.5);
    const lines = sizes.map(
        gpus => best.filter(one => one.gpus === gpus)
                    .sort((one, other) => one.memory - other.memory)
                    .map(at));
    lines.forEach((line, i) => {
      plot.path(
          line.map((one, i) => `${i ? 'L' : 'M'}${round(one.x)} ${round(one.y)}`).join(''),
          dashes(sizes[i]));
    });
    const points = best.map(at);
    for (const stage of [0, 1, 2, 3])
      plot.marks(points.filter(one => one.stage === stage), `s${stage}`, 5);
    label(plot, points, lines);
    for (const one of best) plot.tip(at(one).x, at(one).y, says(one));
    return plot;
  };
  const part = figure({
    id: 'front',
    title: 'Fewer GPUs or less memory',
    draw,
    isWide: true,
    how: `Nothing measured is better than a large point in ${
             metric.name}, GPUs or memory without being worse in another. ` +
        'A line joins those on as many GPUs. Numbers are rows of the table below.',
    says: `${count(best.length, 'member')} on the front. Fastest: ${says(best[0])}. ` +
        `Least memory: ${
              says(best.reduce((one, other) => (other.memory < one.memory ? other : one)))}.`,
    legend: [
      ...stageLegend(best.map(one => stageOf(one.member))),
      legendEntry('beaten by another', 'beaten', shape(0, 7, 7, 3)),
      ...sizes.map(gpus => legendEntry(count(gpus, 'GPU'), dashes(gpus), 'M0 7H14'))
    ],
  });
  const rows = best.slice(0, 100).map(
      (one, i) =>
          [`${i + 1}: ${one.member.name}`, number(one.value), number(one.gpus), bytes(one.memory),
           number(one.perGpu)]);
  part.append(scrolling(
      'Table: the front', 'low',
      table(
          [
            {title: 'Member'}, {title: metricTitle(), isNumber: true},
            {title: 'GPUs', isNumber: true}, {title: 'Memory of a rank', isNumber: true},
            {title: 'samples/s a GPU', isNumber: true}
          ],
          rows)));
  if (best.length > rows.length)
    part.append(el('p', {class: 'note'}, `${best.length - rows.length} more are in results.csv.`));
  return part;
}
