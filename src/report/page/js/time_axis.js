// An axis of time on which long idle stretches are cut out, and marked.

/** Stretches in which something ran, [start, end] each, joined where they touch. */
function joined(stretches) {
  const list = [];
  for (const [start, end] of [...stretches].sort((one, other) => one[0] - other[0])) {
    const last = list.at(-1);
    if (last && start <= last[1])
      last[1] = Math.max(last[1], end);
    else
      list.push([start, Math.max(start, end)]);
  }
  return list;
}

/**
 * The idle stretches that would leave little room for what ran: [start, end] each. They are long
 * beside all that ran, and beside what is usual: the median of the idle stretches, or a mean run.
 * Below a second nobody waits.
 */
function longGaps(busy) {
  const gaps = busy.slice(1).map(([start], i) => [busy[i][1], start]);
  if (!gaps.length) return gaps;
  const lengths = gaps.map(([start, end]) => end - start).sort((one, other) => one - other);
  const total = busy.reduce((sum, [start, end]) => sum + end - start, 0);
  const usual = total > 0 ? Math.min(median(lengths), total / busy.length) : median(lengths);
  const least = Math.max(1, 0.08 * (total + usual * lengths.length), (total > 0 ? 2 : 5) * usual);
  return gaps.filter(([start, end]) => end - start > least);
}

/**
 * When something ran, and the idle stretches that are cut out. Times: seconds since the job began.
 */
function timeline(stretches) {
  const busy = joined(stretches);
  const gaps = longGaps(busy);
  const note = gaps.length ? ' Between dashed lines an idle stretch is cut out.' : '';
  return {begin: busy[0][0], end: busy.at(-1)[1], gaps, note};
}

/** "1:02:30" */
const clock = seconds => [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60),
                          Math.round(seconds % 60)]
                             .map((part, i) => (i ? String(part).padStart(2, '0') : part))
                             .join(':');

/** Draws the axis below the plot; returns where a time is. */
function timeAxis(plot, {begin, end, gaps}, title) {
  // Many cuts are narrow, so that what ran has room.
  const cutWidth = Math.min(16, (0.35 * (plot.right - plot.left)) / gaps.length);
  const cut = gaps.reduce((sum, [from, to]) => sum + to - from, 0);
  const scale = (plot.right - plot.left - (gaps.length ? gaps.length * cutWidth : 0)) /
      (end - begin - cut || 1);
  const at = time => {
    let x = plot.left + (time - begin) * scale;
    for (const [from, to] of gaps) {
      if (time <= from) break;
      x += time >= to ? cutWidth - (to - from) * scale :
                        ((time - from) / (to - from)) * cutWidth - (time - from) * scale;
    }
    return x;
  };
  const steps = [
    0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 28800, 86400
  ];
  const wanted = 90 / scale;
  const step = steps.find(one => one >= wanted) ?? Math.ceil(wanted / 86400) * 86400;
  let free = -Infinity;
  for (let tick = Math.ceil(begin / step) * step; tick <= end; tick += step) {
    const gap = gaps.find(([from, to]) => tick > from && tick < to);
    if (gap) {
      tick = Math.floor(gap[1] / step) * step;
      continue;
    }
    const x = at(tick);
    plot.line(x, plot.top, x, plot.bottom, 'grid');
    const text = step < 60 && tick >= 3600 ? clock(tick) : duration(Number(tick.toPrecision(12)));
    const half = textWidth(text) / 2;
    if (x - half < free) continue;
    plot.text(x, plot.bottom + 16, text);
    free = x + half + 8;
  }
  free = -Infinity;
  for (const [from, to] of gaps) {
    const x = at(from);
    const upright = at => `M${round(at)} ${plot.bottom + 6}V${plot.top - 4}`;
    plot.path(
        cutWidth < 9 ? upright(x + cutWidth / 2) : upright(x + 3) + upright(x + cutWidth - 3),
        'cut');
    const text = `${duration(to - from)} idle`;
    const width = textWidth(text);
    const middle =
        Math.min(Math.max(x + cutWidth / 2, plot.left + width / 2), plot.right - width / 2);
    plot.tips.push({x: x + cutWidth / 2, y: plot.bottom, text: `${text}, cut out`});
    if (middle - width / 2 < free) continue;
    plot.text(middle, plot.top - 8, text, 'middle', 'faint');
    free = middle + width / 2 + 8;
  }
  plot.title(title);
  return at;
}

/** Stretches of the runs, and the moments at which members of a list ended. */
const stretchesOf = list =>
    [...report.runs.map(run => [run[2], run[3]]),
     ...list.map(one => [one.finished_at_s, one.finished_at_s]),
];
