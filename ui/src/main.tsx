import "./style/base.css";
import "./style/shell.css";
import "./style/parts.css";
import { render } from "preact";
import { startKeyboard } from "./app/keyboard";
import { path, startLocation } from "./app/location";
import { Shell } from "./app/shell";
import { startTheme } from "./app/theme";
import { startLink } from "./data/link";
import { startSession } from "./data/session";
import { find } from "./pages/registry";

startTheme();
startLocation();
startKeyboard();
startSession();
// The page's own code and the worker are loaded while the session is asked for.
find(path.value)?.page.load().catch(() => {}); // asked again where it is shown, which says why
startLink();
const root = document.getElementById("app");
if (root !== null) render(<Shell />, root);
