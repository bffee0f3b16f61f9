// The page that shows which settings were chosen for marked texts, what they cost, and what else was tried.
"use strict";

const WORDS = {
  temperature: "Temperature (T)",
  lookahead: "Lookahead (k)",
  guard: "Guard",
  repetition_guard: "Guard against repetition",
  block_length: "Tokens of a block",
  steps: "Steps",
  strategy: "Strategy",
  commit: "Tokens of a step",
  top_p: "Top p",
  top_k: "Top k",
};

const percent = (share) => `${Math.round(100 * share)} %`;
const multiple = (value) => value.toFixed(2);
const codeOf = (length) => (length ? `code ${length}` : "i mod 2");

/** The settings of a point in few words, as `dgmark tune` names them. */
function settingsOf({ decoding, code_length: code }) {
  const guard = decoding.guard ? [`guard ${decoding.guard}`] : [];
  const parts = [`T = ${decoding.temperature}`, `k = ${decoding.lookahead}`, codeOf(code), ...guard];
  return parts.map((one) => one.replaceAll(" ", "\u00a0")).join(", "); // each part on one line
}

function often(rate) {
  return rate > 0 && rate < 1 ? `once in ${number(Math.round(1 / rate))} times` : `at a rate of ${rate}`;
}

async function show() {
  const { models } = await (await ask("/v1/tuning")).json();
  if ($("token").value.trim()) sessionStorage.setItem(TOKEN, $("token").value.trim());
  $("form").hidden = true;
  $("problem").hidden = true;
  $("models").replaceChildren(...models.map(articleOf));
  document.querySelectorAll("article").forEach((article, place) => picture(article, models[place]));
}

function articleOf(model) {
  const article = $("model").content.cloneNode(true).firstElementChild;
  const part = (name) => article.querySelector(name);
  part(".model").textContent = model.name;
  tell(part, model);
  part(".costs").replaceChildren(...costs(model));
  part(".facts tbody").replaceChildren(...facts(model));
  part(".untold").hidden = Boolean(model.frontier);
  part(".tried").hidden = !model.frontier;
  if (model.frontier) table(part, model);
  return article;
}

/** Whether marked text is as good as the goal; null where so few texts cannot tell. */
function met({ measured: { meets_goal: met }, frontier }) {
  if (!frontier || met === undefined) return met;
  const { diversity, perplexity } = intervals(frontier.points[0]);
  const { least_diversity: least, most_perplexity: most } = frontier;
  if (diversity[0] >= least && perplexity[1] <= most) return true;
  return diversity[1] < least || perplexity[0] > most ? false : null;
}

const VERDICTS = new Map([
  [true, ["watermarked", "✓", "As good as text without the watermark"]],
  [false, ["uncertain", "≈", "Not as good as text without the watermark"]],
  [null, ["uncertain", "≈", "Perhaps as good as text without the watermark"]],
]);

/** The same in a sentence. */
function tell(part, model) {
  const { meets_goal: reached, diversity, perplexity } = model.measured;
  part(".verdict").hidden = reached === undefined;
  if (reached === undefined) return;
  const sure = met(model);
  const [look, symbol, heading] = VERDICTS.get(sure);
  part(".verdict").classList.add(look);
  part(".symbol").textContent = symbol;
  part(".heading").textContent = heading;
  const lacks = [];
  if (diversity < 1) lacks.push(`${(100 * (1 - diversity)).toFixed(1)} % less varied`);
  if (perplexity > 1) lacks.push(`${(100 * (perplexity - 1)).toFixed(1)} % harder to predict`);
  const how = lacks.join(" and ") || "at least as varied, and no harder to predict";
  const { texts } = model.measured;
  const doubt = sure === null ? ` ${number(texts)} texts are too few to be sure: the edge of the goal lies within the intervals.` : "";
  part(".sentence").textContent = reached
    ? `With the chosen settings marked text reaches the goal: it is ${how}.${doubt}`
    : `No settings that were tried reach the goal. With the best of them marked text is ${how} than unmarked text.${doubt}`;
}

/** The four figures of the chosen settings. */
function costs({ measured, frontier }) {
  const chosen = frontier?.points[0];
  const between = chosen && intervals(chosen);
  const shown = [
    ["Variety", "diversity", (value) => `× ${multiple(value)}`, between?.diversity, "of unmarked text’s"],
    ["Perplexity", "perplexity", (value) => `× ${multiple(value)}`, between?.perplexity, "of unmarked text’s"],
    ["Evidence", "bits", multiple, null, "bits a token"],
    ["Found", "found", percent, null, `of texts of ${number(measured.tokens ?? 0)} tokens`],
  ];
  return shown
    .filter(([, name]) => typeof measured[name] === "number")
    .map(([name, field, words, range, of]) => {
      const small = range ? make("span", "", `${multiple(range[0])} to ${multiple(range[1])}`) : "";
      return make("div", "", make("dt", "", name), make("dd", "", make("b", "", words(measured[field])), make("span", "", of), small));
    });
}

function facts({ decoding, code_length: code, measured, frontier }) {
  const unmarked = frontier?.unmarked ?? {};
  const other = (name) => (name in unmarked && unmarked[name] !== decoding[name] ? `; unmarked text: ${unmarked[name]}` : "");
  const settings = Object.entries(decoding)
    .filter(([name, value]) => value !== null && (name !== "lookahead_proposals" || decoding.lookahead > 1))
    .map(([name, value]) => [WORDS[name] ?? name.replaceAll("_", " "), `${value}${other(name)}`]);
  const basis = measured.texts
    ? [["Measured on", `${number(measured.texts)} texts of ${number(measured.tokens)} tokens, and as many without the watermark`]]
    : [];
  if (measured.judge) basis.push(["Perplexity by", measured.judge]);
  if (measured.rate) basis.push(["Found", `what looks like it at most ${often(measured.rate)} without the watermark`]);
  return [...settings, ["Position code of the key", codeOf(code)], ...basis].map(([name, value]) => {
    const head = make("th", "", name);
    head.scope = "row";
    return make("tr", "", head, make("td", "", value));
  });
}

/** What was tried, as figures; those that were given up early are shown on request. */
function table(part, { frontier: { points }, name }) {
  part(".wide").ariaLabel = `Figures of the settings that were tried, ${name}`;
  const rows = points.map(rowOf);
  const late = points.filter((one) => one.texts === points[0].texts).length;
  const [rest, more] = [points.length - late, part(".more")];
  part(".late").replaceChildren(...rows.slice(0, late));
  part(".early").replaceChildren(...rows.slice(late));
  more.hidden = !rest;
  const words = () => (part(".early").hidden ? `Show the ${rest} that were given up earlier` : "Hide those that were given up earlier");
  more.textContent = words();
  more.addEventListener("click", () => {
    part(".early").hidden = !part(".early").hidden;
    more.textContent = words();
    more.ariaExpanded = String(!part(".early").hidden);
  });
  part(".tried figcaption").textContent =
    "The cross is text without the watermark. Right of it is more varied, below it is easier to predict, and a larger disc has more evidence of the watermark. Bars are 95 % intervals. " +
    (rest ? `The faint discs were given up after fewer than ${points[0].texts} texts. ` : "") +
    "Variety counts different pairs of neighbouring words (distinct-2). The best settings were chosen on these very texts, which flatters them a little.";
}

function rowOf(point, place) {
  const { diversity, perplexity } = intervals(point);
  const between = (value, [low, high]) => [multiple(value), make("small", "", `${multiple(low)} to ${multiple(high)}`)];
  const head = make("th", "", settingsOf(point), place ? "" : make("span", "label", "chosen"));
  head.scope = "row";
  const cells = [
    [number(point.texts)],
    between(point.diversity, diversity),
    between(point.perplexity, perplexity),
    [multiple(point.bits)],
    [percent(point.found)],
  ];
  return make("tr", place ? "" : "best", head, ...cells.map((one) => make("td", "", ...one)));
}

/** What was tried, as a picture; a row that is pointed at shows its disc. */
function picture(article, { frontier, name }) {
  if (!frontier) return;
  const drawn = article.querySelector(".frontier");
  drawFrontier(drawn, frontier, `Variety and perplexity of the settings that were tried, ${name}; the table has the figures`);
  article.querySelectorAll(".points tbody tr").forEach((row, place) => {
    const light = (on) => drawn.querySelector(`[data-place="${place}"]`).classList.toggle("lit", on);
    row.addEventListener("pointerenter", () => light(true));
    row.addEventListener("pointerleave", () => light(false));
  });
}

function fail(error) {
  if (error.status === 401 || error.status === 403) {
    sessionStorage.removeItem(TOKEN);
    $("form").hidden = false;
    $("token-field").hidden = false;
    if (error.status === 401 && !$("token").value.trim()) return; // the field asks for it
  }
  showProblem("There is nothing to show", error);
}

$("form").addEventListener("submit", (event) => {
  event.preventDefault();
  show().catch(fail);
});
show().catch(fail);
