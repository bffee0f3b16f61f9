// The page that says who signed a report. The server verifies it, with the keys that it trusts.
"use strict";

// what is wrong with a report, by the reason that the service gives
const WRONG = {
  unsigned: "Not signed",
  changed: "Changed after it was signed",
  untrusted: "Signed with a key that is not trusted here",
  no_report: "Signed, but not a report",
};

const allowed = () => service.form !== null;

function showService() {} // there is nothing to choose

async function verify([file]) {
  takeToken();
  $("problem").hidden = $("result").hidden = true;
  $("status").textContent = "Verifying …";
  try {
    await admitted();
    show(file, await (await ask("/v1/report/verify", file)).json());
  } catch (error) {
    if (error.status === 401) refuseToken();
    showProblem("There is no answer", error);
  } finally {
    $("status").textContent = "";
    $("file").value = ""; // the same file may be chosen again
  }
}

function show(file, answer) {
  $("stated").hidden = !answer.valid;
  if (answer.valid) showFacts($("facts"), factsOf(answer));
  showVerdict({
    tone: answer.valid ? "watermarked" : "uncertain",
    symbol: answer.valid ? "●" : "?",
    heading: answer.valid ? sentence(answer.detail).slice(0, -1) : WRONG[answer.reason],
    sentence: answer.valid ? `No byte of “${file.name}” was changed after it was signed.` : `“${file.name}”: ${answer.detail}.`,
  });
}

function factsOf(answer) {
  const { key_fingerprint: fingerprint } = answer;
  const time = make("time", "", new Date(answer.created).toLocaleString("en", { dateStyle: "long", timeStyle: "long", timeZone: "UTC" }));
  time.dateTime = answer.created;
  return [
    ["Verdict", answer.heading],
    ["Of the text", answer.name],
    ["Made", time, ", by the clock of whoever signed it"],
    ["Signed with", ...signerOf(answer), "key ", code(answer.key_id)],
    ...(fingerprint ? keyFacts(answer) : [["Watermark key", "the report names one for each text"]]),
  ];
}

/** The facts of the key of a report of one text. */
function keyFacts({ key_commitment: commitment, key_name: name, key_fingerprint: fingerprint }) {
  const when = commitment && commitment.created.slice(0, 10);
  return [
    ["Watermark key", name ? `${name}, ` : "a key whose owner the report does not name, ", code(fingerprint)],
    commitment
      ? ["Committed before?", `The key meets a commitment, made on ${when} by the word of whoever made it, SHA-256 `, code(commitment.sha256), `. ${commitment.proves}`]
      : ["Committed before?", "The report names no commitment: nothing in it shows that the key is older than the text."],
  ];
}

function signerOf({ signer, own }) {
  const names = [...(signer ? [signer] : []), ...(own ? ["this service"] : [])];
  return [`${names.length ? names.join(", ") : "a key whose owner this service does not name"}, `];
}

$("form").addEventListener("submit", (event) => event.preventDefault());
takeFiles(verify);
greet("There is no answer");
