// The head of the page: the state of a job that runs, the answer, and notes.

const PHASES = {
  start: 'start',
  profiling: 'measuring the machine',
  planning: 'planning',
  search: 'search',
  finals: 'finals',
  writing: 'writing the results',
  done: 'done',
};

/** "12 of about 40 experiments done, 2 running" */
function doneText() {
  const {state} = report;
  const notRun = report.counts.find(one => one.status === 'not_run')?.count ?? 0;
  const total = Math.max(state.planned ?? state.done + notRun, state.done);
  const done = total ? `${number(state.done)} of about ${count(total, 'experiment')} done` :
                       'no experiment done yet';
  return state.running ? `${done}, ${number(state.running)} running` : done;
}

/** A job that lives writes its page more often, as a rule. */
const isOld = time => Date.now() - Date.parse(time) > 10 * 60 * 1000;

/** A plain banner while the job runs, or where it stopped early. */
function banner() {
  const {state} = report;
  if (!state.is_running)
    return state.reason ?
        el('p', {class: 'banner'}, el('strong', {}, 'The job stopped early: '), state.reason) :
        null;
  const {left} = state;
  const leftText = left ? ` About ${duration(left.seconds)} left (${duration(left.low_s)} to ${
                              duration(left.high_s)})` +
          `${left.assumes ? `: ${left.assumes}` : ''}.` :
                            '';
  return el(
      'p', {class: 'banner', id: 'running'}, el('strong', {}, 'This job is running: '),
      `${PHASES[state.phase] ?? state.phase}, ${doneText()}; as of `,
      el('time', {datetime: state.as_of ?? ''}, utc(state.as_of) || 'an unknown time'),
      '; reload for newer data.', leftText,
      isOld(state.as_of) ? ' This is long ago: dstune-mpi status says whether the job still lives.' :
                           '');
}

/** Pairs of a term and its description; those without one are left out. */
const facts = pairs => el(
    'dl', {},
    pairs.filter(([, text]) => text)
        .map(([term,
               text]) => [el('dt', {}, term[0].toUpperCase() + term.slice(1)), el('dd', {}, text)])
        .flat());

function costText(cost) {
  if (cost.text) return cost.text;
  return `${duration(cost.elapsed_s)}, ${number(cost.gpu_hours)} GPU-hours` +
      (isNumber(cost.earned_back_steps) ?
           `; earned back after ${number(Math.ceil(cost.earned_back_steps))} optimizer steps` :
           '');
}

function group({num_gpus: all, num_nodes: nodes, num_gpus_per_node: each}) {
  if (!all) return '';
  return `${count(all, 'GPU')}: ${number(each)} on ${
      nodes === 1 ? 'one node' : `each of ${number(nodes)} nodes`}`;
}

/** The same whether or not there is an answer. */
function jobFacts() {
  const {state, machine, model, deepspeed} = report;
  return [
    ['Model', [model?.name, model?.text].filter(Boolean).join(': ')],
    ['Sequence length', answer?.sequence_length ? count(answer.sequence_length, 'token') : ''],
    ['Machine', machine.text],
    ['Steadiness', machine.conduct],
    ['Date', utc(state.as_of)],
    [
      'DeepSpeed',
      deepspeed ? `${deepspeed.version}${deepspeed.source ? ` (${deepspeed.source})` : ''}` : ''
    ],
  ];
}

function answerCard() {
  const best = {
    ...answer,
    value: metric.toShown(answer.value),
    ci_low: metric.toShown(answer.ci_low),
    ci_high: metric.toShown(answer.ci_high)
  };
  const config = JSON.stringify(answer.ds_config, null, 2);
  const configBlock = el('pre', {tabindex: '0', role: 'region', 'aria-label': 'ds_config'}, config);
  const configPart =
      el('details', {id: 'ds-config'}, el('summary', {}, 'ds_config as JSON'), configBlock);
  const showConfig = () => {
    configPart.open = true;
    selectText(configBlock);
  };
  const isRunning = report.state.is_running;
  const gain = answer.gain?.baseline_member === answer.member ?
      'Your own configuration is the fastest of all that were measured.' :
      answer.gain?.text;
  const result = el(
      'div', {},
      el('h1', {},
         isRunning ? 'The fastest DeepSpeed configuration so far' :
                     'The fastest DeepSpeed configuration'),
      el('p', {class: 'value'}, number(best.value), ' ', el('span', {class: 'unit'}, metric.unit)),
      el('p', {class: 'what'},
         `${metric.name}${metric.hasTarget ? ', expected in your training' : ''}` +
             (interval(best) ? `; 95 % interval ${interval(best)}` : '')),
      gain ? el('p', {class: 'gain'}, gain) : null, el('p', {class: 'name'}, answer.name),
      el('p', {}, el('span', {class: 'label'}, answer.label), ' ', answer.label_words),
      el('p', {class: 'buttons'}, copyButton('Copy ds_config', () => config, showConfig)));
  return el(
      'div', {class: 'card', id: 'answer'},
      el('div', {class: 'halves'}, result, facts([
           [
             'Chance to be the best',
             isNumber(answer.probability_best) ? percent(answer.probability_best) : ''
           ],
           ['Group', group(answer)], ...jobFacts(), ['Cost', costText(answer.cost)]
         ])),
      answer.command ? el('div', {class: 'command'}, el('h2', {class: 'small'}, 'Launch command'),
                          textBlock('Launch command', answer.command, 'Copy command')) :
                       el('p', {}, 'The launch command is in cmd_optimal.txt, beside this page.'),
      configPart,
      el('details', {class: 'in-print'}, el('summary', {}, 'Details'), facts(answer.details)));
}

/** Says why there is no answer. */
function whyNone() {
  const ran = members.filter(one => !statusOf(one.status).isIdle).length;
  if (report.state.is_running)
    return 'There is no answer yet: no experiment has given a result so far.';
  if (!members.length) return 'There is no answer: the space has no members.';
  if (!ran) return 'There is no answer: no experiment was run.';
  return ran === 1 ? 'There is no answer: the one experiment gave no result.' :
                     `There is no answer: none of ${number(ran)} experiments gave a result.`;
}

function noAnswerCard() {
  return el(
      'div', {class: 'card', id: 'answer'}, el('h1', {}, 'The fastest DeepSpeed configuration'),
      el('p', {class: 'name'}, whyNone()), facts(jobFacts()));
}

const head = () => (answer ? answerCard() : noAnswerCard());

function notes() {
  if (!report.notes.length) return null;
  return section(
      'notes', 'Notes', el('ul', {class: 'notes'}, report.notes.map(note => el('li', {}, note))));
}

function reasons() {
  // While the job runs, those that have not run are only waiting.
  const all = report.reasons.filter(one => !report.state.is_running || one.status !== 'not_run');
  if (!all.length) return null;
  const rows = all.slice(0, 200).map(
      ({status, reason, count: size, names}) =>
          [`${statusOf(status).mark}\u00a0${status}`, number(size), reason || 'no reason given',
           names.join(', ') + (size > names.length ? ', …' : '')]);
  const left = all.length - rows.length;
  return section(
      'reasons', 'Failed or not run, and why',
      scrolling(
          'Table: failed or not run', 'low',
          table(
              [
                {title: 'Status'}, {title: 'Members', isNumber: true},
                {title: 'Reason', isText: true}, {title: 'For instance', isText: true}
              ],
              rows)),
      left > 0 ? el('p', {class: 'note'}, `${number(left)} further reasons are in results.csv.`) :
                 null);
}

function environment() {
  if (!report.environment || !Object.keys(report.environment).length) return null;
  return section(
      'environment', 'Environment',
      folded(
          'Versions, hosts and settings (environment.json)',
          () =>
              el('pre', {tabindex: '0', role: 'region', 'aria-label': 'environment.json'},
                 JSON.stringify(report.environment, null, 2))));
}
