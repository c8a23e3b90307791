// Pages are whole without this script; it keeps them up to date, and fetches parts that take long to make.
// Nothing is ever made of text: parts of pages of our own server are moved as they are.

const status = document.getElementById("live");
const words = document.getElementById("live-text");
// What the page was made of: news that came since are news, even before the first word of the server.
let known = document.body.dataset.version;
let busy = false;
let wanted = false;

function tell(kind, text) {
  if (!status) return;
  status.classList.toggle("is-live", kind === "live");
  status.classList.toggle("is-lost", kind === "lost");
  if (words.textContent !== text) words.textContent = text;
}

async function fetched(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  if (!answer.ok && answer.status !== 404) throw new Error(String(answer.status));
  return new DOMParser().parseFromString(await answer.text(), "text/html");
}

// Put the live parts of the newest page in the place of those shown; what has the focus, or is being read, stays.
async function renew() {
  if (busy) { wanted = true; return; }
  busy = true;
  try {
    const page = await fetched(location.href);
    for (const mine of document.querySelectorAll("[data-live]")) {
      const theirs = page.getElementById(mine.id);
      if (!theirs || theirs.innerHTML === mine.innerHTML) continue;
      const focused = mine.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      const scrolled = [...mine.querySelectorAll(".wide")].map((one) => one.scrollLeft);
      mine.replaceChildren(...document.importNode(theirs, true).childNodes);
      mine.querySelectorAll(".wide").forEach((one, i) => { one.scrollLeft = scrolled[i] || 0; });
      if (focused) [...mine.querySelectorAll("a")].find((one) => one.getAttribute("href") === focused)?.focus();
    }
    tell("live", "live");
  } catch {
    tell("lost", "no connection; trying again");
  }
  busy = false;
  if (wanted) { wanted = false; setTimeout(renew, 1000); }
}

function listen() {
  const news = new EventSource("/events");
  news.onopen = () => tell("live", "live");
  news.onerror = () => tell("lost", "no connection; trying again");
  news.onmessage = (event) => {
    const version = JSON.parse(event.data);
    const changed = known !== version;
    known = version;
    if (changed && !document.hidden) renew();
    else if (changed) wanted = true;
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden && wanted) { wanted = false; renew(); } });
}

async function fill(part) {
  part.firstElementChild?.classList.add("loading");
  try {
    const page = await fetched(part.dataset.part);
    part.replaceChildren(...document.importNode(page.body, true).childNodes);
  } catch {
    part.firstElementChild.textContent = "It could not be read.";
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

if (status) listen();
watchParts();
