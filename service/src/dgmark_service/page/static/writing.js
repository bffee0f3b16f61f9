// What is asked of a model, and the canvas that shows it: blanks that fill in the order of decoding.
"use strict";

/** A prompt, or a message for a model that answers messages. */
function asking(model, text) {
  return { model: model.name, ...(model.chat ? { messages: [{ role: "user", content: text }] } : { prompt: text }) };
}

class Canvas {
  /** @param element shows the text. */
  constructor(element) {
    this.element = element;
    this.clear();
  }

  clear() {
    this.cells = [];
    this.steps = 0;
    this.filled = 0;
    this.element.replaceChildren();
    this.element.classList.remove("finished");
  }

  /** Show so many blanks, after the words that the text continues. */
  begin(length, given) {
    this.clear();
    this.given = make("span", "given", given);
    this.cells = Array.from({ length }, () => ({ space: document.createTextNode(""), word: make("span", "cell blank") }));
    this.element.replaceChildren(this.given, ...this.cells.flatMap((cell) => [cell.space, cell.word]));
  }

  /** Fill the blanks of one step. */
  commit({ step, positions, pieces }) {
    for (const cell of this.newest ?? []) cell.word.classList.remove("new");
    this.newest = positions.map((position, index) => {
      const cell = this.cells[position];
      cell.step = step;
      this.put(cell, pieces[index]);
      cell.word.className = cell.word.textContent ? "cell new" : "cell";
      return cell;
    });
    this.steps = step + 1;
    this.filled += positions.length;
  }

  put(cell, piece) {
    const word = piece.trimStart();
    cell.piece = piece;
    cell.space.data = piece.slice(0, piece.length - word.length);
    cell.word.textContent = word;
  }

  /** The text is done: what follows its end goes, and each word gets the colour of its step. */
  finish(text, tokens) {
    for (const cell of this.cells.splice(tokens)) {
      cell.space.remove();
      cell.word.remove();
    }
    this.newest = [];
    this.spell(text);
    const last = Math.max(1, this.steps - 1);
    for (const cell of this.cells) cell.word.style.setProperty("--age", (1 - (cell.step ?? last) / last).toFixed(3));
    this.element.classList.add("finished");
    this.at(this.steps);
  }

  /** Correct the pieces, which were decoded one by one, by the whole text. */
  spell(text) {
    if (this.cells.map((cell) => cell.piece).join("") === text) return;
    let place = 0;
    const exact = this.cells.map(({ piece }) => {
      const found = text.indexOf(piece.trimStart(), place);
      if (found < 0 || text.slice(place, found).trim()) return null;
      const whole = text.slice(place, found + piece.trimStart().length);
      place = found + piece.trimStart().length;
      return whole;
    });
    if (exact.includes(null) || text.slice(place).trim()) {
      // letters that are made of several tokens: the whole text, in the order of its last token
      this.cells = [{ ...this.cells[0], step: this.steps - 1, piece: text }];
      this.element.replaceChildren(this.given, this.cells[0].space, this.cells[0].word);
      this.put(this.cells[0], text);
    } else {
      this.cells.forEach((cell, index) => this.put(cell, exact[index]));
    }
  }

  /** Show the text as it was after so many steps. */
  at(steps) {
    for (const { word, step } of this.cells) {
      word.className = step < steps ? (step === steps - 1 && steps < this.steps ? "cell new" : "cell") : "cell blank";
    }
  }
}
