// Figures of values: over time, by micro-batch, against predictions.

/** No more points are drawn one by one; all are in the tables. */
const MAX_POINTS = 3000;
const metricTitle = () =>
    (metric.hasTarget ? `expected ${metric.name}` : metric.name) + `, ${metric.unit}`;
const largest = (list, value) => list.reduce((most, one) => Math.max(most, value(one) ?? 0), 0);
const thinned = list => {
  const every = Math.ceil(list.length / MAX_POINTS);
  return every > 1 ? list.filter((_, i) => i % every === 0) : list;
};
const better = () => (metric.isMinimised ? 'Lower is better.' : 'Higher is better.');

function bestOverTime() {
  const ended = withValue.filter(member => isNumber(member.finished_at_s))
                    .sort((one, other) => one.finished_at_s - other.finished_at_s);
  if (ended.length < 2) return null;
  const failed =
      members.filter(member => statusOf(member.status).isBad && isNumber(member.finished_at_s));
  const bests = [];
  for (const member of ended)
    if (!bests.length || metric.isBetter(member.value, bests.at(-1).value)) bests.push(member);
  const last = bests.at(-1);
  const time = timeline(stretchesOf([...ended, ...failed]));
  const draw = width => {
    const plot = new Plot(width, 310, {top: 44});
    const x = timeAxis(plot, time, 'time since the job began');
    const y = plot.upwards(largest(ended, one => one.value), metricTitle());
    plot.marks(
        thinned(ended).map(one => ({x: x(one.finished_at_s), y: y(one.value)})), 'beaten', 3);
    for (const one of ended)
      plot.tip(
          x(one.finished_at_s), y(one.value),
          `${one.name}: ${withUnit(one.value)}, after ${duration(one.finished_at_s)}`);
    plot.path(
        failed.slice(0, MAX_POINTS)
            .map(one => `M${round(x(one.finished_at_s) - 3)} ${plot.bottom - 9}l6 6m0 -6l-6 6`)
            .join(''),
        'cross');
    for (const one of failed)
      plot.tip(x(one.finished_at_s), plot.bottom - 6, `${one.name}: ${statusOf(one.status).words}`);
    const steps = bests.map(
        (one, i) => i ? `H${round(x(one.finished_at_s))}V${round(y(one.value))}` :
                        `M${round(x(one.finished_at_s))} ${round(y(one.value))}`);
    plot.path(`${steps.join('')}H${plot.right}`, 'best');
    plot.marks(bests.map(one => ({x: x(one.finished_at_s), y: y(one.value)})), 's0', 4.5);
    return plot;
  };
  return figure({
    id: 'best-over-time',
    title: 'Best over time',
    draw,
    how: `The line is the best so far. ${better()} Grey points are the other experiments.` +
        (failed.length ? ' Crosses at the bottom gave no result.' : '') + time.note,
    says: `The best improved ${count(bests.length - 1, 'time')}, the last time after ${
              duration(last.finished_at_s)}, ` +
        `to ${withUnit(last.value)} with ${last.name}.`,
    legend: [
      legendEntry('best so far', 'best', 'M0 10H6V4H14'),
      legendEntry('an experiment', 'beaten', shape(0, 7, 7, 3.5)),
      failed.length ? legendEntry('no result', 'cross', 'M3 3l8 8m0 -8l-8 8') : null
    ].filter(Boolean),
    data: () => [
        [
          {title: 'Member'}, {title: 'After', isNumber: true},
          {title: metricTitle(), isNumber: true}
        ],
        bests.map(one => [one.name, duration(one.finished_at_s), number(one.value)])],
  });
}

function byMicroBatch() {
  const best = new Map();
  for (const member of withValue) {
    if (!isNumber(member.micro_batch)) continue;
    const key = `${stageOf(member)}/${member.micro_batch}`;
    if (!best.has(key) || metric.isBetter(member.value, best.get(key).value)) best.set(key, member);
  }
  const sizes = [...new Set([...best.values()].map(one => one.micro_batch))].sort(
      (one, other) => one - other);
  if (best.size < 2) return null;
  const list = [...best.values()].sort(
      (one, other) => stageOf(one) - stageOf(other) || one.micro_batch - other.micro_batch);
  const stages = [...new Set(list.map(stageOf))];
  const top = list.reduce((one, other) => (metric.isBetter(other.value, one.value) ? other : one));
  const draw = width => {
    const plot = new Plot(width, 300, {top: 24});
    const y = plot.upwards(
        largest(list, one => Math.max(one.value, Math.min(one.ci_high ?? 0, 2 * one.value))),
        metricTitle());
    const step = (plot.right - plot.left) / sizes.length;
    // Sizes stand side by side at equal distances; stages beside each other, so that their bars
    // show.
    const shift = Math.min(7, (step * 0.7) / stages.length);
    const x = one => plot.left + step * (sizes.indexOf(one.micro_batch) + 0.5) +
        shift * (stages.indexOf(stageOf(one)) - (stages.length - 1) / 2);
    const every = Math.ceil(sizes.length / ((plot.right - plot.left) / 36));
    sizes.forEach((size, i) => {
      if (i % every === 0) plot.text(plot.left + step * (i + 0.5), plot.bottom + 16, number(size));
    });
    plot.title('micro-batch size of a GPU');
    for (const stage of stages) {
      const points = list.filter(one => stageOf(one) === stage);
      plot.path(
          points.map((one, i) => `${i ? 'L' : 'M'}${round(x(one))} ${round(y(one.value))}`)
              .join(''),
          `l${stage}`);
      for (const one of points) {
        if (one.ci_low !== null && one.ci_high !== null) {
          const [low, high] = [one.ci_low, one.ci_high].map(
              end => round(Math.max(plot.top, Math.min(plot.bottom, y(end)))));
          plot.path(`M${round(x(one) - 3)} ${low}h6m-3 0V${high}m-3 0h6`, `l${stage} thin`);
        }
        plot.tip(
            x(one), y(one.value),
            `${one.name}: ${withUnit(one.value)}` +
                (interval(one) ? ` (95 % interval ${interval(one)})` : ''));
      }
      plot.marks(points.map(one => ({x: x(one), y: y(one.value), stage})), `s${stage}`);
    }
    return plot;
  };
  return figure({
    id: 'micro-batch',
    title: 'Micro-batch size and ZeRO stage',
    draw,
    legend: stageLegend(list.map(stageOf)),
    how: `The best of each stage at each size. ${better()} The bars are 95 % intervals.`,
    says: `The best is ZeRO ${stageOf(top)} at micro-batch size ${top.micro_batch}: ${
        withUnit(top.value)}.`,
    data: () => [
        [
          {title: 'Member'}, {title: 'ZeRO stage', isNumber: true},
          {title: 'Micro-batch', isNumber: true}, {title: metricTitle(), isNumber: true},
          {title: '95 % interval', isNumber: true}
        ],
        list.map(
            one =>
                [one.name, String(stageOf(one)), number(one.micro_batch), number(one.value),
                 interval(one)])],
  });
}

/** pairs: [{member, predicted, found, isHollow}] in units of the axes. */
function againstPrediction({id, title, how, pairs, unit, found, show}) {
  if (pairs.length < 2) return null;
  const errors =
      pairs.map(one => Math.abs(one.predicted / one.found - 1)).sort((one, other) => one - other);
  const most = largest(pairs, one => Math.max(one.predicted, one.found));
  const hollow = pairs.filter(one => one.isHollow);
  const draw = width => {
    const plot = new Plot(width, 320, {top: 24});
    const y = plot.upwards(most, `${found}, ${unit}`);
    const x = plot.rightwards(0, most * 1.04, `predicted, ${unit}`);
    plot.line(x(0), y(0), x(most), y(most), 'equal');
    const at = one => ({x: x(one.predicted), y: y(one.found), stage: stageOf(one.member)});
    const shown = thinned(pairs);
    for (const stage of [0, 1, 2, 3]) {
      const points = shown.filter(one => stageOf(one.member) === stage);
      plot.marks(
          points.filter(one => !one.isHollow).map(at), `s${stage}`, points.length > 500 ? 2.5 : 4);
      plot.marks(points.filter(one => one.isHollow).map(at), `l${stage} hollow`, 6.5);
    }
    for (const one of shown)
      plot.tip(
          x(one.predicted), y(one.found),
          `${one.member.name}: predicted ${show(one.predicted)}, ` +
              `${one.isHollow ? 'in DeepSpeed' : found} ${show(one.found)}`);
    return plot;
  };
  return figure({
    id,
    title,
    how,
    draw,
    says: `Half of ${count(pairs.length, 'prediction')} are off by less than ${
        percent(median(errors))}.`,
    legend: [
      ...stageLegend(pairs.map(one => stageOf(one.member))),
      hollow.length ? legendEntry('hollow: verified in DeepSpeed', 'l0 hollow', shape(0, 7, 7, 5)) :
                      null,
      legendEntry('equal', 'equal', 'M0 14L14 0')
    ].filter(Boolean),
    data: () => [
        [
          {title: 'Member'}, {title: `Predicted, ${unit}`, isNumber: true},
          {title: `${found}, ${unit}`, isNumber: true},
          {title: 'Predicted is off by', isNumber: true}
        ],
        pairs.slice(0, 1000).map(
            one =>
                [one.member.name + (one.isHollow ? ' (in DeepSpeed)' : ''), number(one.predicted),
                 number(one.found),
                 `${one.predicted >= one.found ? '+' : '−'}${
                     percent(Math.abs(one.predicted / one.found - 1))}`])],
  });
}

function predictedSpeed() {
  const usable = members.filter(one => one.predicted > 0);
  const pairs = [
    ...usable.filter(one => one.value > 0)
        .map(member => ({member, predicted: member.predicted, found: member.value})),
    ...usable.filter(one => one.verified > 0)
        .map(
            member =>
                ({member, predicted: member.predicted, found: member.verified, isHollow: true})),
  ];
  return againstPrediction({
    id: 'predicted-speed',
    title: 'Speed: predicted, measured, verified',
    pairs,
    unit: metric.unit,
    show: withUnit,
    found: metric.hasTarget ? 'expected by measurement' : 'measured',
    how: 'Each point is an experiment. On the dashed line the prediction is exact' +
        (metric.isMinimised ? '.' : '; points above it ran faster than predicted.'),
  });
}

function predictedMemory() {
  const usable = members.filter(one => one.memory_bytes > 0 && one.predicted_memory_bytes > 0);
  const [unit, size] = memoryUnit(largest(usable, one => one.memory_bytes));
  return againstPrediction({
    id: 'predicted-memory',
    title: 'Memory: predicted and measured',
    unit,
    found: 'measured',
    pairs: usable.map(member => ({
                        member,
                        predicted: member.predicted_memory_bytes / size,
                        found: member.memory_bytes / size
                      })),
    show: value => `${number(value)} ${unit}`,
    how: 'Memory of the fullest rank. On the dashed line the prediction is exact; ' +
        'points above it took more.',
  });
}
