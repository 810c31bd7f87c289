// The table of all members: filter, sort, pages, and rows that open.

const ROWS_OF_PAGE = 50;

/** A column: title; text: a member's cell; by: what it is sorted by, else its text. */
function memberColumns() {
  const has = column => members.some(member => isNumber(member[column]));
  const numeric = (title, column, show = number) => ({
    title,
    isNumber: true,
    text: member => (isNumber(member[column]) ? show(member[column]) : ''),
    by: member => member[column]
  });
  const memory = (title, column) =>
      ({...numeric(title, column, bytes), by: member => member[column] || null});
  const ofKey = (key, place) => {
    const isAllNumbers = key.values.every(isNumber);
    return {
      title: key.label,
      isKey: true,
      isNumber: isAllNumbers,
      text: member => shortened(keyText(member, place), 80),
      by: isAllNumbers ? member => key.values[member.keys[place]] : null
    };
  };
  const shown = report.keys.map((key, place) => [key, place]).filter(([key]) => !key.is_derived);
  return [
    {...numeric(metricTitle(), 'value'), id: 'value'},
    {title: 'Member', isName: true, text: member => member.name},
    {
      title: 'Status',
      text: member => `${statusOf(member.status).mark}\u00a0${member.status}`,
      by: member => member.status
    },
    {title: '95 % interval', isNumber: true, text: interval, by: member => member.ci_low},
    ...shown.map(([key, place]) => ofKey(key, place)),
    metric.hasTarget && has('measured') && numeric('Measured here', 'measured'),
    has('verified') && numeric('In DeepSpeed', 'verified'),
    has('predicted') && numeric('Predicted', 'predicted'),
    has('memory_bytes') && memory('Memory', 'memory_bytes'),
    has('predicted_memory_bytes') && memory('Planned memory', 'predicted_memory_bytes'),
    has('joules_per_sample') && numeric('J/sample', 'joules_per_sample'),
    has('finished_at_s') && numeric('Ended after', 'finished_at_s', duration),
  ].filter(Boolean);
}

const collator = new Intl.Collator('en', {numeric: true});

/**
 * Best first: those with a value, then those that ran, then the others in the order of the space.
 */
function bestFirst() {
  const ran = member => Number(!statusOf(member.status).isIdle);
  const others =
      members.filter(member => member.value === null).sort((one, other) => ran(other) - ran(one));
  return [...ranked, ...others];
}

function sorted(list, column, isDown) {
  const by = column.by ?? column.text;
  const known = [], unknown = [];
  for (const member of list) {
    const value = by(member);
    (value === null || value === undefined || value === '' ? unknown : known).push({member, value});
  }
  const order = known.length && isNumber(known[0].value) ?
      (one, other) => one.value - other.value :
      (one, other) => collator.compare(one.value, other.value);
  known.sort(isDown ? (one, other) => order(other, one) : order);
  return [...known, ...unknown].map(({member}) => member);
}

/** The text that a filter looks into; made once a member. */
function searchText(member) {
  member.searched ??= [
    member.name, member.status, member.reason,
    ...report.keys.map((key, place) => `${key.label}=${keyText(member, place)}`)
  ].join('\n').toLowerCase();
  return member.searched;
}

/** "8 GPUs, ZeRO stage 2, micro-batch 32, accumulation 2, recompute none" */
const shapeText =
    member => [isNumber(member.num_gpus) && count(member.num_gpus, 'GPU'),
               isNumber(member.stage) && `ZeRO stage ${member.stage}`,
               isNumber(member.micro_batch) && `micro-batch ${number(member.micro_batch)}`,
               isNumber(member.accumulation) && `accumulation ${number(member.accumulation)}`,
               member.recompute && `recompute ${member.recompute}`,
].filter(Boolean).join(', ');

/** All of one member, shown below its row. */
function memberDetails(member) {
  const config = JSON.stringify(configOf(member), null, 2);
  return el(
      'div', {class: 'opened'}, facts([
        ['Status', `${member.status}: ${statusOf(member.status).words}`],
        ['Reason', member.reason],
        [
          metricTitle(),
          member.value === null ? '' :
                                  withUnit(member.value) +
                  (interval(member) ? `, 95 % interval ${interval(member)}` : '')
        ],
        ['Measured here', metric.hasTarget ? withUnit(member.measured) : ''],
        ['In DeepSpeed itself', withUnit(member.verified)],
        ['Predicted', withUnit(member.predicted)],
        ['Group and batch', shapeText(member)],
        [
          'Memory of the fullest rank',
          [
            bytes(member.memory_bytes) && `${bytes(member.memory_bytes)} measured`,
            bytes(member.predicted_memory_bytes) &&
                `${bytes(member.predicted_memory_bytes)} planned`,
            bytes(member.target_memory_bytes) &&
                `${bytes(member.target_memory_bytes)} in your training`
          ].filter(Boolean)
              .join(', ')
        ],
        [
          'Energy',
          isNumber(member.joules_per_sample) ? `${number(member.joules_per_sample)} J/sample` : ''
        ],
        [
          'Probability that it is the best',
          isNumber(member.probability_best) ? percent(member.probability_best) : ''
        ],
        [
          'Ended',
          isNumber(member.finished_at_s) ? `${duration(member.finished_at_s)} after the job began` :
                                           ''
        ],
      ]),
      textBlock(`ds_config of ${member.name}`, config, 'Copy this ds_config'));
}

/** The body of a row: a value first, then the name, which opens it. */
function memberRows(member, columns, opened) {
  const detailsId = `member-${member.index}`;
  const {isBad, isIdle} = statusOf(member.status);
  const row = el('tr', {
    class: [member.index === answer?.member && 'best', isBad && 'bad-row', isIdle && 'idle']
               .filter(Boolean)
               .join(' ') ||
        null
  });
  const name =
      el('button', {type: 'button', class: 'opener', 'aria-expanded': 'false'},
         breakable(member.name));
  let details = null;
  const set = isOpen => {
    name.setAttribute('aria-expanded', String(isOpen));
    if (isOpen) {
      details ??=
          el('tr', {id: detailsId, class: 'details'},
             el('td', {colspan: columns.length}, memberDetails(member)));
      row.after(details);
      name.setAttribute('aria-controls', detailsId);
      opened.add(member.index);
    } else {
      details?.remove();
      name.removeAttribute('aria-controls');
      opened.delete(member.index);
    }
  };
  name.addEventListener('click', () => set(!opened.has(member.index)));
  for (const column of columns)
    row.append(
        column.isName ? el('th', {scope: 'row'}, name) :
                        el('td',
                           {class: column.isNumber ? 'number' :
                                column.isKey       ? 'key' :
                                                     null},
                           column.text(member)));
  return {row, open: () => set(true)};
}

function membersTable() {
  if (!members.length) return null;
  const columns = memberColumns();
  const state = {text: '', status: '', column: null, isDown: false, page: 0};
  const opened = new Set();
  let ordered = bestFirst(), shown = ordered;

  const body = el('tbody');
  const told = el('p', {class: 'note', id: 'members-count', role: 'status'});
  const place = el('span', {class: 'place'});
  const back =
      el('button', {type: 'button', id: 'page-back', onclick: () => turn(-1)}, '← Previous');
  const on = el('button', {type: 'button', id: 'page-on', onclick: () => turn(1)}, 'Next →');
  const pages = el('p', {class: 'buttons', id: 'pages'}, back, on, place);
  const region = scrolling('Table: all members', 'members', el('table', {id: 'members-table'}));

  function draw() {
    const first = state.page * ROWS_OF_PAGE;
    const part = shown.slice(first, first + ROWS_OF_PAGE)
                     .map(member => [member, memberRows(member, columns, opened)]);
    body.replaceChildren(...part.map(([, {row}]) => row));
    for (const [member, {open}] of part)
      if (opened.has(member.index)) open();
    if (!part.length)
      body.append(
          el('tr', {}, el('td', {colspan: columns.length}, 'No member matches the filter.')));
    pages.hidden = shown.length <= ROWS_OF_PAGE;
    back.disabled = state.page === 0;
    on.disabled = first + ROWS_OF_PAGE >= shown.length;
    place.textContent =
        `Rows ${number(first + 1)} to ${number(first + part.length)} of ${number(shown.length)}`;
  }
  function filter() {
    const words = state.text.toLowerCase().split(/\s+/).filter(Boolean);
    shown = ordered.filter(
        member => (!state.status || member.status === state.status) &&
            words.every(word => searchText(member).includes(word)));
    state.page = 0;
    told.textContent = shown.length === members.length ?
        `${count(members.length, 'member')}.` :
        `${number(shown.length)} of ${count(members.length, 'member')}.`;
    draw();
  }
  function turn(step) {
    state.page += step;
    draw();
    region.scrollTop = 0;
    announce(place.textContent);
    if (document.activeElement === document.body) (step > 0 ? back : on).focus();
  }
  function sortBy(column, header) {
    state.isDown = state.column === column ?
        !state.isDown :
        column.isNumber && !(column.id === 'value' && metric.isMinimised);
    state.column = column;
    for (const other of headers.cells) other.removeAttribute('aria-sort');
    header.setAttribute('aria-sort', state.isDown ? 'descending' : 'ascending');
    ordered = sorted(bestFirst(), column, state.isDown);
    filter();
    announce(`Sorted by ${column.title}, ${state.isDown ? 'largest' : 'smallest'} first`);
  }

  const headers = el('tr', {}, columns.map(column => {
    const header = el(
        'th', {scope: 'col', class: column.isNumber ? 'number' : null, 'data-title': column.title});
    header.append(
        el('button', {type: 'button', class: 'sorter', onclick: () => sortBy(column, header)},
           breakable(column.title)));
    return header;
  }));
  region.firstChild.append(el('thead', {}, headers), body);
  const textId = newId('filter'), statusId = newId('filter');
  const counts = report.counts.filter(one => one.count > 0);
  const fields =
      el('p', {class: 'fields'},
         el('span', {class: 'field'},
            el('label',
               { for: textId
               },
               'Filter'),
            el('input', {
              id: textId,
              type: 'search',
              placeholder: 'name, reason, stage=3 …',
              autocomplete: 'off',
              spellcheck: 'false',
              oninput: event => {
                state.text = event.target.value;
                filter();
              }
            })),
         el('span', {class: 'field'},
            el('label',
               { for: statusId
               },
               'Status'),
            el('select', {
              id: statusId,
              onchange: event => {
                state.status = event.target.value;
                filter();
              }
            },
               el('option', {value: ''}, 'all'),
               counts.map(
                   one => el(
                       'option', {value: one.status}, `${one.status} (${number(one.count)})`)))));
  filter();
  return section(
      'members', 'All members',
      el('p', {class: 'note'},
         `Values are ${metricTitle()}. A click on a column's title sorts by it; ` +
             'a name opens all of its configuration.' +
             (metric.hasTarget ? ` "Measured here" is ${metric.source}.` : '')),
      fields, told, region, pages);
}
