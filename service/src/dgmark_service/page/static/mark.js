// The page that marks a text which exists already, shows it before and after, and says whether the mark will be found.
"use strict";

const STAYS = "Capitalised words, numbers, quotations, code, headings and addresses stay";
const NEAR = 0.01; // of a share that is asked for, as whole words are replaced

let key = null; // the key of the text that is shown

// the answer has a probability under the key
const allowed = () => service.may_generate && service.form === "full";

function chooseModel() {
  $("key-field").hidden = model().keys.length < 2;
  offer($("key"), model().keys.map((name) => new Option(nameOf(name), name)));
}

async function mark() {
  const text = filledIn($("text"), "There is no text yet: paste one.");
  const keep = $("keep").value.split("\n").map((line) => line.trim()).filter(Boolean);
  const { name } = await loadedModel();
  $("status").textContent = "The text is being marked …";
  const share = Number($("share").value);
  const fields = { model: name, text, share, keep, watermark: { key_id: $("key").value } };
  $("progress").value = 0;
  const step = ({ done, of }) => ($("progress").value = done / of);
  const marked = await write("/v1/infill", fields, { step }, stop.signal);
  $("status").textContent = "The new text is being checked …";
  const verdict = await verdictOf(marked);
  if (verdict.found === false) verdict.sentence = `${whyNot(marked, fields)} ${verdict.sentence}`;
  show(text, marked, verdict);
}

/** Why a text of which this much was masked will not be found. */
function whyNot({ masked }, { share, keep }) {
  const part = `${percent(masked)} of the text`;
  const todo = keep.length ? ", and so does what you asked to keep. Keep less, or mark" : ". Mark";
  return masked < share - NEAR
    ? `Only ${part} could be replaced. ${STAYS}${todo} a longer text.`
    : `${part} was replaced, which is too little here. ${share < 1 ? "Replace more of it, or mark" : "Mark"} a longer text.`;
}

const percent = (value) => `${(100 * value).toFixed(1)} %`;

function show(text, marked, verdict) {
  const [before, after] = [text.split(" "), marked.text.split(" ")]; // a word is replaced by a word
  $("before-text").replaceChildren(...withChanges("del", before, after));
  $("after-text").replaceChildren(...withChanges("ins", after, before));
  $("after-title").textContent = verdict.found ? "After, with the watermark" : "After";
  $("carries").hidden = !verdict.found;
  key = marked.watermark.key_id;
  const share = (value) => `${percent(value)} of the tokens`;
  const rare = verdict.rarity ? [["Chance without the key", verdict.rarity]] : [];
  showFacts($("facts"), [
    ["Masked", share(marked.masked)],
    ["Changed", share(marked.changed)],
    ...rare,
    ["Watermark key", nameOf(key)],
  ]);
  const changed = $("after-text").querySelectorAll("ins").length;
  $("status").textContent = changed === 1 ? "1 word was changed." : `${number(changed)} words were changed.`;
  showVerdict(verdict);
}

/** The words of a text; those that are others in another text stand in elements of this tag, without what follows them. */
function withChanges(tag, words, others) {
  return words.flatMap((word, place) => {
    const [, letters, rest] = /^(\p{L}*)(.*)$/su.exec(word);
    return [place ? " " : "", ...(word === others[place] ? [word] : [make(tag, "", letters), rest])];
  });
}

onSubmit($("text"), "The text is not marked", mark);
$("check").addEventListener("click", () => handOver($("after-text").textContent, key));
greet("The text is not marked");
