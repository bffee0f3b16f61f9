// The picture of all settings that were tried: variety across, perplexity upward, evidence as area.
"use strict";

const SVG = "http://www.w3.org/2000/svg";
const Z = 1.96; // standard errors of a 95 % interval
const NARROWEST = 200; // pixels
const LADDER = [0.1, 0.2, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100];
const LARGEST = 13; // radius of the point with the most evidence

function draw(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

/** The 95 % intervals of a point. */
function intervals(point) {
  const [across, factor] = [Z * point.diversity_error, Math.exp(Z * point.log_perplexity_error)];
  return {
    diversity: [Math.max(0, point.diversity - across), point.diversity + across],
    perplexity: [point.perplexity / factor, point.perplexity * factor],
  };
}

/** A scale from values to places. Multiples have a logarithmic one: twice is as far from once as half is. */
function scaleOf(values, from, to, logarithmic) {
  const [there, back] = logarithmic ? [Math.log, Math.exp] : [(one) => one, (one) => one];
  const [low, high] = [there(Math.min(...values)), there(Math.max(...values))];
  const margin = 0.06 * (high - low);
  const [begin, end] = [low - margin, high + margin];
  const place = (value) => from + ((there(value) - begin) / (end - begin)) * (to - from);
  return { place, ...marksOf(back(begin), back(end), logarithmic) };
}

/** Round values between two, and how many digits they need. */
function marksOf(begin, end, logarithmic) {
  const few = LADDER.filter((one) => begin <= one && one <= end);
  if (logarithmic && few.length > 3) return { marks: few, digits: few[0] < 1 ? 1 : 0 };
  const rough = (end - begin) / 7;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const marks = [];
  for (let at = Math.ceil(begin / step); at * step <= end; at++) marks.push(at * step);
  return { marks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

/** Draw into an element, as wide as it is, and again when its width changes. */
function drawFrontier(element, frontier, name) {
  const paint = ([{ contentRect }]) => {
    const width = Math.max(NARROWEST, Math.round(contentRect.width));
    element.replaceChildren(frontierOf(frontier, width, name));
  };
  new ResizeObserver(paint).observe(element);
}

function frontierOf({ points, least_diversity: least, most_perplexity: most }, width, name) {
  const height = Math.round(Math.min(440, Math.max(320, 0.62 * width)));
  const [left, right, top, bottom] = [52, width - 14, 14, height - 50];
  const last = points[0].texts; // those that were given up earlier are measured worse, and may lie anywhere
  const sure = points.filter((one) => one.texts === last).map(intervals);
  const across = scaleOf([least, 1, ...points.map((one) => one.diversity), ...sure.flatMap((one) => one.diversity)], left, right, false);
  const up = scaleOf([most, 1, ...points.map((one) => one.perplexity), ...sure.flatMap((one) => one.perplexity)], bottom, top, true);
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": name });
  picture.append(goalOf(across, up, least, most, right, bottom), ...axesOf(across, up, { left, right, top, bottom }));
  const bits = Math.max(...points.map((one) => one.bits)) || 1;
  const drawn = points.map((one, place) => pointOf(one, across, up, LARGEST * Math.sqrt(one.bits / bits), place, one.texts === last));
  picture.append(...drawn.reverse()); // the chosen one above all
  const [x, y] = [across.place(1), up.place(1)];
  picture.append(draw("path", { class: "unmarked", d: `M${x - 6} ${y - 6}l12 12m-12 0l12 -12` }));
  return picture;
}

function goalOf(across, up, least, most, right, bottom) {
  const [x, y] = [across.place(least), up.place(most)];
  const inside = draw("rect", { class: "goal", x, y, width: right - x, height: bottom - y });
  return draw("g", {}, inside, draw("text", { class: "word", x: right - 8, y: bottom - 10, "text-anchor": "end" }, "the goal"));
}

function axesOf(across, up, { left, right, top, bottom }) {
  const parts = [draw("path", { class: "axis", d: `M${left} ${top}V${bottom}H${right}` })];
  for (const value of across.marks) {
    const x = across.place(value);
    parts.push(draw("path", { class: "axis", d: `M${x} ${bottom}v5` }));
    parts.push(draw("text", { class: "tick", x, y: bottom + 19, "text-anchor": "middle" }, value.toFixed(across.digits)));
  }
  for (const value of up.marks) {
    const y = up.place(value);
    parts.push(draw("path", { class: "axis", d: `M${left} ${y}h-5` }));
    parts.push(draw("text", { class: "tick", x: left - 9, y: y + 4, "text-anchor": "end" }, value.toFixed(up.digits)));
  }
  const middle = (top + bottom) / 2;
  parts.push(draw("text", { class: "title", x: (left + right) / 2, y: bottom + 42, "text-anchor": "middle" }, "variety (unmarked text: 1) →"));
  parts.push(draw("text", { class: "title", x: 0, y: 0, "text-anchor": "middle", transform: `translate(12 ${middle}) rotate(-90)` }, "perplexity (unmarked text: 1) →"));
  return parts;
}

function pointOf(point, across, up, radius, place, sure) {
  const { diversity, perplexity } = intervals(point);
  const [x, y] = [across.place(point.diversity), up.place(point.perplexity)];
  const group = draw("g", { class: place ? (sure ? "point" : "point faint") : "point best", "data-place": place });
  if (sure) {
    const bars = `M${across.place(diversity[0])} ${y}H${across.place(diversity[1])}M${x} ${up.place(perplexity[0])}V${up.place(perplexity[1])}`;
    group.append(draw("path", { class: "bars", d: bars }));
  }
  group.append(draw("circle", { cx: x, cy: y, r: Math.max(2.5, radius) }, draw("title", {}, settingsOf(point))));
  return group;
}
