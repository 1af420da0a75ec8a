import "./style/base.css";
import "./style/shell.css";
import "./style/parts.css";
import { render } from "preact";
import { startKeyboard } from "./app/keyboard";
import { startLocation } from "./app/location";
import { Shell } from "./app/shell";
import { startTheme } from "./app/theme";
import { startSession } from "./data/session";

startTheme();
startLocation();
startKeyboard();
startSession();
const root = document.getElementById("app");
if (root !== null) render(<Shell />, root);
