import 'uplot/dist/uPlot.min.css';
import './styles/base.css';
import './styles/controls.css';
import './styles/shell.css';
import './styles/tables.css';
import './styles/charts.css';
import './styles/views.css';
import { render } from 'preact';
import { App } from './app';
import { live } from './live';
import { startTheme } from './theme';

startTheme();
live.start();
const root = document.getElementById('app');
if (root) render(<App />, root);
