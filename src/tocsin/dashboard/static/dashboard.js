// Pages are whole without this script; it keeps them up to date, and fetches parts that take long to make.
// Nothing is ever made of text: parts of pages of our own server are moved as they are.

const status = document.getElementById("live");
const words = document.getElementById("live-text");
// What the page was made of: news that came since are news, even before the first word of the server.
let known = document.body.dataset.version;
let busy = false;
let wanted = false;
let gone = false;

function tell(kind, text) {
  if (!status) return;
  status.classList.toggle("is-live", kind === "live");
  status.classList.toggle("is-lost", kind === "lost");
  if (words.textContent !== text) words.textContent = text;
}

// The server is there; whether the run goes on is another matter, and the page says so.
function connected() {
  if (gone) { tell("lost", "removed; this is the last state"); return; }
  const going = document.body.dataset.going || "live";
  tell(going === "live" ? "live" : "still", going);
}

async function fetched(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  // A server that was started anew knows no cookie of before: the page asks for the token.
  if (answer.status === 401) location.reload();
  if (!answer.ok && answer.status !== 404) throw new Error(String(answer.status));
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  return { page, isThere: answer.ok };
}

// Put the live parts of the newest page in the place of those shown; what has the focus, or is being read, stays.
async function renew() {
  if (busy) { wanted = true; return; }
  busy = true;
  try {
    const { page, isThere } = await fetched(location.href);
    for (const mine of document.querySelectorAll("[data-live]")) {
      const theirs = page.getElementById(mine.id);
      if (!theirs || theirs.innerHTML === mine.innerHTML) continue;
      const focused = mine.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      const scrolled = [...mine.querySelectorAll(".wide")].map((one) => one.scrollLeft);
      mine.replaceChildren(...document.importNode(theirs, true).childNodes);
      mine.querySelectorAll(".wide").forEach((one, i) => { one.scrollLeft = scrolled[i] || 0; });
      if (focused) [...mine.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
    }
    document.body.dataset.going = page.body.dataset.going || "";
    mark();
    // What it showed, as an alert or a run, is gone: what is still to be seen is as it was.
    gone = !isThere;
    connected();
  } catch {
    tell("lost", "connection lost; retrying");
  }
  busy = false;
  if (wanted) { wanted = false; setTimeout(renew, 1000); }
}

// What is wider than its place says so: a table that is cut off looks whole otherwise.
function mark() {
  for (const one of document.querySelectorAll(".wide")) one.classList.toggle("is-cut", one.scrollWidth > one.clientWidth + 4);
}

function listen() {
  const news = new EventSource("/events");
  news.onopen = connected;
  news.onerror = () => {
    tell("lost", "connection lost; retrying");
    // A server that refuses, as one with too many listeners or a new token, is not asked again by the browser itself.
    if (news.readyState === EventSource.CLOSED) setTimeout(() => { renew(); listen(); }, 10000);
  };
  news.onmessage = (event) => {
    const version = JSON.parse(event.data);
    const changed = known !== version;
    known = version;
    if (changed && !document.hidden) renew();
    else if (changed) wanted = true;
  };
}

document.addEventListener("visibilitychange", () => { if (!document.hidden && wanted) { wanted = false; renew(); } });

// A server that is busy, or away for a moment, is asked again.
async function fill(part, tries = 3) {
  part.firstElementChild?.classList.add("loading");
  try {
    const { page } = await fetched(part.dataset.part);
    part.replaceChildren(...document.importNode(page.body, true).childNodes);
    mark();
    // Where a drawing is wider than the screen, what it is about is shown first.
    for (const one of part.querySelectorAll(".wide.is-cut")) {
      const about = one.querySelector(".span, .firing")?.getBoundingClientRect();
      if (about) one.scrollLeft += about.left + about.width / 2 - one.getBoundingClientRect().left - one.clientWidth / 2;
    }
  } catch {
    if (tries > 1) { setTimeout(fill, 2000, part, tries - 1); return; }
    part.firstElementChild.textContent = "This part could not be loaded.";
  }
}

function watchParts() {
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) { seen.unobserve(entry.target); fill(entry.target); }
    }
  });
  document.querySelectorAll("[data-part]").forEach((part) => seen.observe(part));
}

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const search = document.querySelector("input[type=search]");
  if (search) { event.preventDefault(); search.focus(); }
});

// A chart shows the text below the pointer. Without this script, browsers show it as a hint.
document.addEventListener("pointerover", (event) => {
  const chart = event.target.closest("figure, .drawn");
  const hint = event.target.querySelector(":scope > title");
  if (!chart || !hint || !event.target.closest("svg")) return;
  let shown = chart.querySelector(":scope > .readout");
  if (!shown) {
    shown = document.createElement("p");
    shown.className = "readout";
    shown.setAttribute("aria-hidden", "true");
    chart.append(shown);
  }
  shown.textContent = hint.textContent;
});

if (status) listen();
watchParts();
mark();
addEventListener("resize", mark);
