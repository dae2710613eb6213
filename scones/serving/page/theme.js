// Before anything is drawn: the theme that was chosen here earlier. Without one the system's holds.
"use strict";
try {
  const chosen = localStorage.getItem("theme");
  if (chosen) document.documentElement.dataset.theme = chosen;
} catch { /* storage is closed to us: the system's theme it is */ }
