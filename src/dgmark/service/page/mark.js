// The page that marks a text which exists already, and shows it before and after.
"use strict";

function chooseModel() {
  $("key").replaceChildren(...model().keys.map((name) => new Option(name, name)));
  $("key-field").hidden = model().keys.length < 2;
}

async function mark() {
  const text = filledIn($("text"), "There is no text yet: paste one.");
  const keep = $("keep").value.split("\n").map((line) => line.trim()).filter(Boolean);
  const { name } = await loadedModel();
  $("status").textContent = "The text is being marked …";
  const fields = { model: name, text, share: Number($("share").value), keep, watermark: { key_id: $("key").value } };
  show(text, await (await ask("/v1/infill", JSON.stringify(fields), stop.signal)).json());
}

function show(text, answer) {
  const [before, after] = [text.split(" "), answer.text.split(" ")]; // a word is replaced by a word
  $("before-text").replaceChildren(...withChanges("del", before, after));
  $("after-text").replaceChildren(...withChanges("ins", after, before));
  const share = (value) => `${(100 * value).toFixed(1)} % of the tokens`;
  showFacts($("facts"), [
    ["Masked", share(answer.masked)],
    ["Changed", share(answer.changed)],
    ["p-value expected", pValue(answer.expected_p)],
    ["p-value reached", pValue(answer.p_value)],
    ["Watermark key", answer.watermark.key_id],
  ]);
  $("result").hidden = false;
  $("result").scrollIntoView({ block: "nearest" });
  $("status").textContent = `Marked: ${number($("after-text").querySelectorAll("ins").length)} words were changed.`;
}

/** The words of a text; those that are others in another text stand in elements of this tag, without what follows them. */
function withChanges(tag, words, others) {
  return words.flatMap((word, place) => {
    const [, letters, rest] = /^(\p{L}*)(.*)$/su.exec(word);
    return [place ? " " : "", ...(word === others[place] ? [word] : [make(tag, "", letters), rest])];
  });
}

onSubmit($("text"), "The text is not marked", mark);
$("check").addEventListener("click", () => handOver($("after-text").textContent));
meet().catch((error) => showProblem("The text is not marked", error));
