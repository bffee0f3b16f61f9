// The page that checks a text. All words about a verdict come from the server, at its own false-positive rate.
"use strict";

const CHECKING = "Checking …";
const MOST_NAME = 200; // characters of a name that the service takes

let files = []; // the chosen documents
let table = []; // the checks of several documents, in the order of the table
let shown = null; // {answer, source, characters}: the check whose result is shown

// --- asking the service ---

function bodyOf(source, fields) {
  if (!source.file) return JSON.stringify({ ...fields, text: source.text });
  const form = new FormData();
  form.append("options", JSON.stringify(fields));
  form.append("document", source.file, source.file.name);
  return form;
}

/** A name without what shows nothing in it, which the service refuses. */
const visible = (name) => name.replace(/[\p{C}\p{Zl}\p{Zp}]+/gu, " ").trim().slice(0, MOST_NAME).trim() || "a text";

const allowed = () => service.form !== null;

function showService() {
  const signed = service.signed ? "signed by this service" : "not signed: this service has no signing key";
  for (const one of document.querySelectorAll(".signed")) one.textContent = signed;
  const options = service.keys.map(({ name }) => new Option(nameOf(name), name));
  $("key-field").hidden = options.length < 2;
  offer($("key"), [new Option("any key", ""), ...options]);
}

async function check() {
  const sources = files.length
    ? files.map((file) => ({ file }))
    : [{ text: filledIn($("text"), "There is no text yet: paste one, or choose a document.") }];
  $("status").textContent = CHECKING;
  $("several").hidden = sources.length === 1;
  await admitted();
  if (sources.length > 1) return checkAll(sources);
  show(await answered(sources[0]));
  $("status").textContent = "";
}

/** What the service answers about a text or a document. */
async function answered(source) {
  const fields = { spans: true, include_text: true };
  if ($("key").value) fields.key = $("key").value;
  const answer = await (await ask("/v1/detect", bodyOf(source, fields), stop.signal)).json();
  return { answer, source, key: fields.key, characters: Array.from(answer.text.content) };
}

async function checkAll(sources) {
  $("result").hidden = true;
  $("rows").replaceChildren();
  table = [];
  for (const [place, source] of sources.entries()) {
    $("progress").value = place / sources.length;
    $("status").textContent = CHECKING;
    let checked;
    try {
      checked = await inTime(() => answered(source), sayWaiting);
    } catch (error) {
      if (error.status === 401 || error.name === "AbortError") throw error;
      checked = { source, error };
    }
    table.push(checked);
    addRow(checked);
  }
  $("status").textContent = `${number(sources.length)} documents were checked.`;
}

function sayWaiting(seconds) {
  $("status").textContent = `The service takes no more for now: going on in ${number(seconds)} seconds …`;
}

function addRow(checked) {
  const { answer, source, error } = checked;
  const head = make("th", "", source.file.name);
  const cell = make("td", "", make("span", "", error ? "There is no answer" : `${answer.symbol} ${answer.heading}`));
  head.scope = "row";
  for (const note of error ? [error.message] : answer.document.notes) cell.append(" ", make("small", "hint", sentence(note)));
  if (!error) {
    const button = make("button", "link", source.file.name);
    button.type = "button";
    button.addEventListener("click", () => show(checked));
    head.replaceChildren(button);
  }
  $("rows").append(make("tr", "", head, cell));
}

// --- showing the answer ---

function show(checked) {
  shown = checked;
  const { answer, source } = shown;
  $("result").hidden = false;
  $("name").textContent = source.file?.name ?? "";
  $("meaning").replaceChildren(...answer.meaning.map((one) => make("li", "", one)));
  $("sureness").hidden = answer.form !== "full";
  if (answer.form === "full") renderScale(answer);
  renderText(answer);
  renderFacts(answer);
  showVerdict({ ...answer, tone: answer.in_part ? "partly" : answer.verdict });
}

function renderScale({ p_value, fpr, rarity }) {
  const place = (p) => `${(100 * Math.min(1, Math.max(0, -Math.log10(p) / $("scale").dataset.decades))).toFixed(2)}%`;
  for (const id of ["enough", "threshold"]) $(id).style.left = place(fpr);
  $("pin").style.left = `calc(${place(p_value)} - .4rem)`;
  const beyond = p_value < 10 ** -$("scale").dataset.decades;
  // the pin points at some part of its number, which ends where the scale does
  $("here").style.left = place(p_value);
  $("here").style.transform = `translateX(-${place(p_value)})`;
  $("beyond").hidden = !beyond;
  $("here").replaceChildren("this text", make("br"), rarity);
  $("scale").ariaLabel = `Scale of rarity. A text counts as watermarked from the dashed line on. This text: ${rarity}.`;
}

/** The characters of a span, with its matching tokens shaded by how much they count. */
function shaded({ start, end }, shades) {
  const text = (from, to) => shown.characters.slice(from, to).join("");
  const pieces = [];
  let place = start;
  for (const one of shades) {
    if (one.start < start || one.end > end) continue;
    pieces.push(text(place, one.start), make("span", `shade-${one.level}`, text(one.start, one.end)));
    place = one.end;
  }
  return [...pieces, text(place, end)];
}

function renderText(answer) {
  const spans = answer.spans ?? [];
  const pieces = [];
  let end = 0;
  spans.forEach((one, index) => {
    const label = make("span", "label", make("span", "hidden", "start of "), `marked ${index + 1}`);
    const words = shaded(one, answer.shades ?? []);
    const mark = make("mark", "", label, ...words, make("span", "hidden", ` end of marked ${index + 1} `));
    mark.id = `span-${index + 1}`;
    pieces.push(shown.characters.slice(end, one.start).join(""), mark);
    end = one.end;
  });
  pieces.push(shown.characters.slice(end).join(""));
  $("scored").replaceChildren(...pieces);
  const many = spans.length;
  const shades = answer.shades ? ` ${$("scored").dataset.shaded}` : "";
  const found = answer.where + (many ? ` Marked spans are underlined.${shades}` : "");
  const read = answer.document;
  const from = read ? `Read from “${shown.source.file.name}” (${read.kind}${read.pages ? `, ${number(read.pages)} pages` : ""}). ` : "";
  const notes = read && read.notes.length ? `${read.notes.map(sentence).join(" ")} ` : "";
  $("about-text").textContent = from + notes + found;
  $("about-text").hidden = !$("about-text").textContent;
  $("spans-part").hidden = !many;
  $("scrolls").hidden = $("scored").scrollHeight <= $("scored").clientHeight;
  $("spans").replaceChildren(
    ...spans.map((one, index) => {
      const words = shown.characters.slice(one.start, one.end).join("").split(/\s+/).filter(Boolean).join(" ");
      const link = make("a", "", `“${words.length > 160 ? `${words.slice(0, 159).trimEnd()}…` : words}”`);
      link.href = `#span-${index + 1}`;
      const rare = one.rarity ? `; chance without the key at most ${one.rarity}` : "";
      return make("li", "", link, make("span", "", `Characters ${number(one.start + 1)} to ${number(one.end)}${rare}.`));
    }),
  );
}

function renderFacts(answer) {
  const whose = `${answer.key_name ?? "a key whose owner this service does not name"}, key `;
  const key = answer.key ? [whose, code(answer.key), ", fingerprint ", code(answer.key_fingerprint)] : [`none of ${answer.keys_tested} keys`];
  const rows = [["Watermark key", ...key]];
  rows.push(["False-positive rate", `${answer.fpr_rarity}, set when the service was started`]);
  if (answer.form === "full") {
    rows.push(["p-value", pValue(answer.p_value)]);
    const pairs = "pairs_scored" in answer.figures;
    const [matched, scored] = pairs
      ? [answer.figures.pairs_matched, answer.figures.pairs_scored]
      : [answer.num_tokens_matched, answer.num_tokens_scored];
    const many = `${number(matched)} of ${number(scored)}`;
    const [low, high] = answer.matched_by_chance.map(number);
    const about = low === high ? low : `${low} to ${high}`;
    const byChance = answer.verdict === "uncertain" ? "" : `; by chance about ${about} would match`; // too few to tell
    rows.push([`Matching ${pairs ? "pairs" : "tokens"}`, many + byChance]);
  }
  rows.push(["Text", `${number(answer.text.length)} characters, SHA-256 `, code(answer.text.sha256)]);
  showFacts($("facts"), rows);
}

/** The service's report of a text or a document that was checked. */
async function reportOf({ source, key }, format, signal) {
  const fields = { format, name: source.file ? visible(source.file.name) : "pasted text" };
  if (key) fields.key = key;
  return await ask("/v1/report", bodyOf(source, fields), signal);
}

async function download(format) {
  try {
    save(await (await reportOf(shown, format)).blob(), format);
    $("status").textContent = "The report was downloaded.";
  } catch (error) {
    $("status").textContent = `There is no report: ${error.message}`;
  }
}

/** One report of all documents, which also names those without an answer. */
async function downloadJoined(format) {
  const answered = table.filter((one) => one.answer);
  if (!answered.length) throw new Error("None of the documents has an answer that could be reported.");
  const reports = [];
  for (const [place, one] of answered.entries()) {
    $("progress").value = place / answered.length;
    $("status").textContent = "The report is being made …";
    const report = () => reportOf(one, "json", stop.signal);
    reports.push(await (await inTime(report, sayWaiting)).text());
  }
  const unanswered = table.filter((one) => !one.answer).map(({ source }) => visible(source.file.name));
  const joined = JSON.stringify({ reports, format, unanswered, name: `${number(table.length)} documents` });
  save(await (await inTime(() => ask("/v1/report/join", joined, stop.signal), sayWaiting)).blob(), format);
  const without = unanswered.length ? ` It names ${number(unanswered.length)} without an answer.` : "";
  $("status").textContent = `The report of ${number(table.length)} documents was downloaded.${without}`;
}

function save(report, format) {
  const link = make("a");
  link.href = URL.createObjectURL(report);
  link.download = `report.${format}`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// --- choosing what is checked ---

function choose(some) {
  files = some;
  $("chosen").hidden = !files.length;
  $("text").hidden = Boolean(files.length);
  const size = files.reduce((sum, file) => sum + file.size, 0);
  $("file-name").textContent = files.length > 1 ? `${number(files.length)} documents` : files[0]?.name;
  $("file-size").textContent = size < 1e6 ? `${number(Math.ceil(size / 1e3))} kB` : `${(size / 1e6).toFixed(1)} MB`;
  $("file").value = ""; // the same document may be chosen again
  $("submit").textContent = files.length > 1 ? "Check the documents" : files.length ? "Check the document" : "Check the text";
}

onSubmit($("text"), "There is no answer", check);
$("remove").addEventListener("click", () => {
  choose([]);
  $("text").focus();
});
takeFiles(choose, (text) => {
  choose([]);
  $("text").value = text;
});
for (const tick of document.querySelectorAll("[data-place]")) tick.style.left = `${tick.dataset.place}%`;
for (const button of document.querySelectorAll("[data-format]")) {
  button.addEventListener("click", () => download(button.dataset.format));
}

for (const button of document.querySelectorAll("[data-joined]")) {
  button.addEventListener("click", () => doing("There is no report", () => downloadJoined(button.dataset.joined)));
}

// a text that another page handed over is checked at once, under the key that it names
const handed = JSON.parse(sessionStorage.getItem(HANDED));
sessionStorage.removeItem(HANDED);
if (handed) $("text").value = handed.text;
greet("There is no answer").then(() => {
  if (service?.sample && !$("text").value) {
    $("text").value = $("text").defaultValue = service.sample;
    $("status").textContent = "This is a sample that carries a watermark: check it, or put a text of yours in its place.";
  }
  if (!handed || !service || !allowed()) return;
  if ([...$("key").options].some((one) => one.value === handed.key)) $("key").value = handed.key;
  $("form").requestSubmit();
});
