// Applies the stored theme before the first drawing. "" follows the system.
"use strict";
try {
  document.documentElement.dataset.theme = localStorage.getItem("hive-theme") || "";
} catch {
  // without storage the page follows the system
}
