// The page that says who signed a report. The server verifies it, with the keys that it trusts.
"use strict";

async function verify([file]) {
  $("problem").hidden = $("result").hidden = true;
  $("status").textContent = "Verifying …";
  try {
    show(file, await (await ask("/v1/report/verify", file)).json());
  } catch (error) {
    if (error.status === 401) forgetToken();
    showProblem("There is no answer", error);
  } finally {
    $("status").textContent = "";
    $("file").value = ""; // the same file may be chosen again
  }
}

function show(file, answer) {
  $("verdict").className = `verdict ${answer.valid ? "watermarked" : "uncertain"}`;
  $("symbol").textContent = answer.valid ? "●" : "?";
  $("heading").textContent = answer.valid ? sentence(answer.detail).slice(0, -1) : "Not verified";
  $("sentence").textContent = answer.valid ? `No byte of “${file.name}” was changed after it was signed.` : `“${file.name}”: ${answer.detail}.`;
  $("stated").hidden = !answer.valid;
  if (answer.valid) showFacts($("facts"), factsOf(answer));
  $("result").hidden = false;
  $("verdict").focus();
}

function factsOf(answer) {
  const { key_commitment: commitment, key_name: name } = answer;
  const time = make("time", "", new Date(answer.created).toLocaleString("en", { dateStyle: "long", timeStyle: "long", timeZone: "UTC" }));
  time.dateTime = answer.created;
  const when = commitment && commitment.created.slice(0, 10);
  return [
    ["Verdict", answer.heading],
    ["Of the text", answer.name],
    ["Made", time, ", by the clock of whoever signed it"],
    ["Signed with", ...(answer.signer ? [`${answer.signer}, `] : []), ...(answer.own ? ["this service, "] : []), "key ", code(answer.key_id)],
    ["Watermark key", ...(name ? [`${name}, `] : []), code(answer.key_fingerprint)],
    commitment
      ? ["Committed before?", `The key meets a commitment, made on ${when} by the word of whoever made it, SHA-256 `, code(commitment.sha256), `. ${commitment.proves}`]
      : ["Committed before?", "The report names no commitment: nothing in it shows that the key is older than the text."],
  ];
}

$("form").addEventListener("submit", (event) => event.preventDefault());
takeFiles(verify);
about().catch((error) => showProblem("There is no answer", error)); // asks for a token if one is needed
