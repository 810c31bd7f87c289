// Puts the page together.

/** The parts of the page in their order; null where there is nothing to show. */
function parts() {
  const inOrder = effectsInOrder();
  // Narrow figures stand side by side, so those between two wide ones are kept together.
  const figures = [
    bestOverTime(), byMicroBatch(), effects(inOrder), pairsOfKnobs(inOrder), memoryOfBest(),
    predictedSpeed(), predictedMemory(), front(), ...answerMemories(), slots()
  ].filter(Boolean);
  const shown = figures.length ? el('div', {class: 'figures'}, figures) : null;
  // Without an answer, the reasons are what a reader comes for.
  const list = answer ? [notes(), shown, membersTable(), reasons(), environment()] :
                        [reasons(), notes(), shown, membersTable(), environment()];
  return list.filter(Boolean);
}

/** Links to the sections. */
function contents(main) {
  const sections = [...main.querySelectorAll('section')];
  if (sections.length < 2) return null;
  return el(
      'nav', {'aria-label': 'On this page'},
      el('ul', {},
         sections.map(
             one => el(
                 'li', {}, el('a', {href: `#${one.id}`}, one.querySelector('h2').textContent)))));
}

function build() {
  const main = document.querySelector('main');
  main.replaceChildren(announcer, ...[banner(), head()].filter(Boolean), ...parts());
  const links = contents(main);
  if (links) main.querySelector('#answer').after(links);
  main.append(
      el('p', {class: 'note end'},
         `Written by ${report.written_by}, ${utc(report.state.as_of)}. ` +
             'All of it as data: report.json and results.csv, beside this page.'));
  document.title = answer ?
      `${number(metric.toShown(answer.value))} ${metric.unit}: ${answer.name}` :
      'dstune-mpi: report';
}

// On paper nothing unfolds: what belongs there is opened.
addEventListener('beforeprint', () => {
  for (const details of document.querySelectorAll('details.in-print')) details.open = true;
});

build();
