'use strict';
// The data of the page, report.json, as objects, and its numbers as texts.

const report = JSON.parse(document.getElementById('report-data').textContent);

/** Units that are shown: the largest of these that the best value fills. */
const SHOWN_UNITS = {
  'µs': [['s', 1e6], ['ms', 1e3], ['µs', 1]],
  'FLOP/s':
      [['PFLOP/s', 1e15], ['TFLOP/s', 1e12], ['GFLOP/s', 1e9], ['MFLOP/s', 1e6], ['FLOP/s', 1]],
};

const isNumber = value => typeof value === 'number' && Number.isFinite(value);

const members = report.members.map((row, index) => {
  const member = {index};
  for (let i = 0; i < row.length; ++i) member[report.columns[i]] = row[i];
  member.status = report.statuses[member.status] ?? '';
  member.reason = report.texts[member.reason] ?? '';
  member.keys ??= [];
  return member;
});

/** The metric, whose values are brought to the unit that is shown. */
const metric = (() => {
  const {name, unit, is_minimised: isMinimised, has_target: hasTarget, source} = report.metric;
  const [base, ...rest] = unit.split(' ');
  let largest = Math.abs(report.answer?.value ?? 0);
  if (!largest)
    for (const {value} of members) largest = Math.max(largest, value ?? 0);
  const [shown, factor] = SHOWN_UNITS[base]?.find(([, size]) => largest >= size) ?? [base, 1];
  const toShown = value => (isNumber(value) ? value / factor : null);
  for (const member of members)
    for (const column of ['value', 'ci_low', 'ci_high', 'measured', 'verified', 'predicted'])
      member[column] = toShown(member[column]);
  return {
    name: name.replaceAll('_', ' '),
    unit: [shown, ...rest].join(' '),
    isMinimised,
    hasTarget,
    source,
    toShown,
    isBetter: (one, other) => (isMinimised ? one < other : one > other),
    /** How many times as good; above 1 is better, whichever way the metric counts. */
    ratio: (one, other) => (isMinimised ? other / one : one / other),
  };
})();

const answer = report.answer;
const withValue = members.filter(member => member.value !== null);
/** Members with a value, best first, the answer before all. */
const ranked = [...withValue].sort(
    (one, other) => (other.index === answer?.member) - (one.index === answer?.member) ||
        (metric.isMinimised ? one.value - other.value : other.value - one.value));

const STATUS = {
  ok: {mark: '✓', words: 'measured'},
  raced_out: {mark: '✓', words: 'stopped early, clearly slower than the best so far'},
  out_of_memory: {mark: '✕', words: 'ran out of memory', isBad: true},
  timed_out: {mark: '✕', words: 'took too long', isBad: true},
  failed: {mark: '✕', words: 'failed', isBad: true},
  infeasible: {mark: '–', words: 'does not fit, so it was not run', isIdle: true},
  pruned: {mark: '–', words: 'skipped, so it was not run', isIdle: true},
  not_run: {mark: '–', words: 'not run', isIdle: true},
};
const statusOf = status => STATUS[status] ?? {mark: '·', words: status};

/** "52.1", "1,234", "0.00933": four digits that count. */
function number(value) {
  if (!isNumber(value)) return '';
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-4)) return value.toExponential(2);
  if (size >= 1000) return Math.round(value).toLocaleString('en');
  return String(Number(value.toPrecision(4)));
}

const withUnit = value => (value === null ? '' : `${number(value)} ${metric.unit}`);
const interval = ({ci_low: low, ci_high: high}) =>
    low === null || high === null ? '' : `${number(low)} to ${number(high)}`;
const percent = share => `${number(100 * share)} %`;
const count = (size, word, words = word + 's') => `${number(size)} ${size === 1 ? word : words}`;

function bytes(size) {
  if (!isNumber(size) || size <= 0) return '';
  const [unit, one] =
      [['TiB', 2 ** 40], ['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10], ['bytes', 1]].find(
          ([, least]) => size >= least) ??
      ['bytes', 1];
  return `${number(Number((size / one).toPrecision(3)))} ${unit}`;
}

/** "8.4 s", "2 m 30 s", "1 h 5 m", "3 d 2 h" */
function duration(seconds) {
  if (!isNumber(seconds)) return '';
  if (seconds < 0) return `−${duration(-seconds)}`;
  if (seconds === 0) return '0 s';
  if (seconds < 1) return `${number(Number((seconds * 1000).toPrecision(3)))} ms`;
  if (seconds < 60) return `${number(Number(seconds.toPrecision(3)))} s`;
  const parts = (large, one, small, other) => {
    const [whole, rest] = [Math.floor(seconds / one), Math.round((seconds % one) / other)];
    return rest * other >= one ? `${whole + 1} ${large}` :
        rest ? `${whole} ${large} ${rest} ${small}` :
               `${whole} ${large}`;
  };
  if (seconds < 3600) return parts('m', 60, 's', 1);
  return seconds < 86400 ? parts('h', 3600, 'm', 60) : parts('d', 86400, 'h', 3600);
}

/** "2026-11-29 14:31:05 UTC" */
const utc = time => (time ? `${time.slice(0, 19).replace('T', ' ')} UTC` : '');

/** A value of a configuration, as JSON without the quotes of a text; 5e8 for 500000000. */
function plain(value) {
  if (typeof value === 'string') return value;
  if (value === undefined) return '';
  const text = JSON.stringify(value);
  if (!isNumber(value) || Math.abs(value) < 1e6) return text;
  const short = value.toExponential().replace('e+', 'e');
  return short.length < text.length - 2 ? short : text;
}
/** The text of a member's value of a key; empty where it does not have the key. */
const keyText = (member, place) => member.keys[place] === null || member.keys[place] === undefined ?
    '' :
    plain(report.keys[place].values[member.keys[place]]);

/** The whole DeepSpeed configuration of a member. */
function configOf(member) {
  const config = structuredClone(report.common_config ?? {});
  report.keys.forEach(({pointer, is_config: isConfig, values}, place) => {
    const index = member.keys[place];
    if (!isConfig || index === null || index === undefined) return;
    const path =
        pointer.split('/').slice(1).map(part => part.replaceAll('~1', '/').replaceAll('~0', '~'));
    const last = path.pop();
    let at = config;
    // defineProperty: a key may have the name __proto__.
    const put = (key, value) => Object.defineProperty(
        at, key, {value, enumerable: true, writable: true, configurable: true});
    for (const part of path) {
      if (!Object.hasOwn(at, part) || typeof at[part] !== 'object' || at[part] === null)
        put(part, {});
      at = at[part];
    }
    put(last, values[index]);
  });
  return config;
}

const median = sorted => quantile(sorted, 0.5);
/** The value below which a share of an ascending list lies. */
function quantile(sorted, share) {
  const place = share * (sorted.length - 1);
  const below = sorted[Math.floor(place)];
  return below + (sorted[Math.ceil(place)] - below) * (place % 1);
}
