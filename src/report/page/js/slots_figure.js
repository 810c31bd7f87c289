// Runs on their ranks over time, a row a rank.

const KINDS = ['first run', 'run again in the search', 'run again in the finals', 'no result'];

/** Ranks that are neighbours, as [first row, number of rows] each. */
function blocks(ranks, rowOf) {
  const rows = ranks.map(rank => rowOf.get(rank)).sort((one, other) => one - other);
  const list = [];
  for (const row of rows) {
    const last = list.at(-1);
    if (last && row === last[0] + last[1])
      ++last[1];
    else
      list.push([row, 1]);
  }
  return list;
}

function slots() {
  const runs = report.runs
                   .map(
                       ([member, kind, start, end, ranks, isGood]) =>
                           ({member: members[member], kind: isGood ? kind : 3, start, end, ranks}))
                   .filter(run => run.ranks.length);
  if (!runs.length) return null;
  const ranks = [...new Set(runs.flatMap(run => run.ranks))].sort((one, other) => one - other);
  const rowOf = new Map(ranks.map((rank, row) => [rank, row]));
  const busy = runs.reduce((sum, run) => sum + (run.end - run.start) * run.ranks.length, 0);
  const span = joined(runs.map(run => [run.start, run.end]))
                   .reduce((sum, [start, end]) => sum + end - start, 0);
  const time = timeline(runs.map(run => [run.start, run.end]));
  const draw = width => {
    const height = Math.min(26, Math.max(2, 600 / ranks.length));
    const plot = new Plot(width, height * ranks.length + 84, {top: 36, bottom: 48});
    plot.root.append(patterns());
    const x = timeAxis(plot, time, 'time since the job began');
    const every = Math.ceil(14 / height);
    ranks.forEach((rank, row) => {
      if (row % every === 0)
        plot.text(plot.left - 6, plot.top + height * (row + 0.5) + 4, `rank ${rank}`, 'end');
    });
    const bars = KINDS.map(() => '');
    for (const run of runs) {
      const left = round(x(run.start));
      const wide = Math.max(0.6, round(x(run.end) - left - 0.6));
      for (const [row, rows] of blocks(run.ranks, rowOf)) {
        const [up, high] =
            [round(plot.top + height * row + 1), round(Math.max(1, height * rows - 2))];
        bars[run.kind] += `M${left} ${up}h${wide}v${high}h${- wide}z`;
        plot.tip(
            left + wide / 2, up + high / 2,
            `${run.member?.name}: ${KINDS[run.kind]}, ${duration(run.end - run.start)}, ` +
                `${count(run.ranks.length, 'rank')}`);
      }
    }
    bars.forEach((d, kind) => plot.path(d, `k${kind}`));
    return plot;
  };
  const kinds = [...new Set(runs.map(run => run.kind))].sort();
  return figure({
    id: 'slots',
    title: 'Runs on their ranks over time',
    draw,
    isWide: true,
    how: 'A bar is a run on its ranks, a row a rank.' + time.note +
        (report.runs.length >= 5000 ? ' Only the last 5,000 runs are shown.' : ''),
    says: `${count(runs.length, 'run')} on ${
              count(ranks.length, 'rank')}; while anything ran, ranks were busy ` +
        `${percent(Math.min(1, busy / (span * ranks.length || 1)))} of the time.`,
    legend: kinds.map(kind => legendEntry(KINDS[kind], `k${kind}`, 'M0 1h14v12h-14z')),
    data: () => [
        [
          {title: 'Member'}, {title: 'Run'}, {title: 'Started', isNumber: true},
          {title: 'Took', isNumber: true}, {title: 'Ranks', isText: true}
        ],
        runs.slice(-500).map(
            run =>
                [run.member?.name ?? '', KINDS[run.kind], duration(run.start),
                 duration(run.end - run.start), run.ranks.join(', ')])],
  });
}

/** Hatching tells kinds of runs apart without colour; once in the page is enough. */
function patterns() {
  const hatch = (id, style, d) => svgEl(
      'pattern', {id, width: 6, height: 6, patternUnits: 'userSpaceOnUse'},
      svgEl('rect', {width: 6, height: 6, class: `${style}-back`}),
      svgEl('path', {d, class: `${style}-lines`}));
  return svgEl(
      'defs', {}, hatch('hatch-again', 'again', 'M-1 1l2 -2M0 6l6 -6M5 7l2 -2'),
      hatch('hatch-finals', 'finals', 'M0 3h6'), hatch('hatch-bad', 'bad', 'M0 0l6 6M0 6l6 -6'));
}
