// Elements of the page: text is only ever set as text, never as HTML.

function filledElement(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith('on'))
      element.addEventListener(name.slice(2), value);
    else
      element.setAttribute(name, value === true ? '' : value);
  }
  element.append(
      ...children.flat().filter(child => child !== null && child !== undefined && child !== ''));
  return element;
}

const el = (tag, attributes, ...children) =>
    filledElement(document.createElement(tag), attributes, children);
const svgEl = (tag, attributes, ...children) => filledElement(
    document.createElementNS('http://www.w3.org/2000/svg', tag), attributes, children);

let lastId = 0;
const newId = what => `${what}-${++lastId}`;

/** A section with its heading, in the list of what is on the page. */
function section(id, title, ...children) {
  const heading = newId('heading');
  return el(
      'section', {id, 'aria-labelledby': heading}, el('h2', {id: heading}, title), ...children);
}

/** A part that scrolls within itself; keys reach it, and it has a name. */
const scrolling = (name, style, ...children) =>
    el('div', {class: `scroll ${style}`, tabindex: '0', role: 'region', 'aria-label': name},
       ...children);

/** columns: [{title, isNumber}], the first one heads the rows; rows: lists of texts or elements. */
function table(columns, rows) {
  const style = column => (column.isNumber ? 'number' : column.isText ? 'text' : null);
  return el(
      'table', {},
      el('thead', {},
         el('tr', {},
            columns.map(column => el('th', {scope: 'col', class: style(column)}, column.title)))),
      el('tbody', {},
         rows.map(
             row =>
                 el('tr', {},
                    row.map(
                        (cell, i) =>
                            el(i ? 'td' : 'th', {class: style(columns[i]), scope: i ? null : 'row'},
                               cell))))));
}

/** A part that is folded, and made only when it is opened first. */
function folded(title, make, attributes = {}) {
  const details = el('details', attributes, el('summary', {}, title));
  let isMade = false;
  details.addEventListener('toggle', () => {
    if (details.open && !isMade) {
      isMade = true;
      details.append(...[make()].flat());
    }
  });
  return details;
}

/** Told to those who do not see the page. */
const announcer = el('p', {class: 'unseen', role: 'status'});
const announce = text => {
  announcer.textContent = text;
};

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // A page from a file may have no clipboard: the older way.
    const before = document.activeElement;
    const area = el('textarea', {class: 'unseen', 'aria-hidden': 'true', tabindex: '-1'});
    area.value = text;
    document.body.append(area);
    area.select();
    const isCopied = document.execCommand('copy');
    area.remove();
    before?.focus();
    return isCopied;
  }
}

/** `select`: shows the text, selected, where the browser lets no page copy. */
function copyButton(title, text, select) {
  const button = el('button', {type: 'button', class: 'copy'}, title);
  button.addEventListener('click', async () => {
    const isCopied = await copied(text());
    button.textContent = isCopied ? 'Copied ✓' : 'Select and copy the text';
    announce(
        isCopied ? `Copied: ${title}` :
                   'This browser lets no page copy. The text is selected: copy it by keyboard.');
    if (!isCopied) select?.();
    setTimeout(() => {
      button.textContent = title;
    }, 2500);
  });
  return button;
}

function selectText(element) {
  const range = document.createRange();
  range.selectNodeContents(element);
  getSelection().removeAllRanges();
  getSelection().addRange(range);
  element.focus();
}

/** A text to be copied, with its button. */
function textBlock(name, text, title) {
  const block = el('pre', {tabindex: '0', role: 'region', 'aria-label': name}, text);
  return [copyButton(title, () => text, () => selectText(block)), block];
}

/** "a very long …" */
const shortened = (text, most) => (text.length <= most ? text : `${text.slice(0, most - 1)}…`);

/** A name that may break behind what joins its words. */
const breakable = text =>
    text.split(/(?<=[_./])/).flatMap((part, i) => (i ? [el('wbr'), part] : [part]));

const textWidth = (() => {
  const context = document.createElement('canvas').getContext('2d');
  context.font = '12px system-ui, sans-serif';
  return text => context.measureText(text).width;
})();

/** As much of a text as is not wider than this. */
function fitted(text, width) {
  let most = Math.min(text.length, 200);
  while (most > 3 && textWidth(shortened(text, most)) > width) most = Math.ceil(most * 0.95) - 1;
  return shortened(text, most);
}
