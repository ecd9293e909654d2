// Draws the panels of a dashboard with the components of Grafana's own time series panel (@grafana/ui), each with the
// data of its queries. `window.dashboard` has {panels, from, to, scheme}: panels of the dashboard's JSON, whose targets
// have `series`: [{name, points: [[milliseconds, value], ...]}]. What was drawn is in `window.drawn` afterwards.
import {
  cacheFieldDisplayNames, createTheme, dateTime, FieldColorModeId, FieldType, getDisplayProcessor, getValueFormats,
  ThemeContext, toDataFrame,
} from '@grafana/data';
import { GlobalStyles, PanelChrome, TimeSeries } from '@grafana/ui';
import { createElement as e } from 'react';
import { createRoot } from 'react-dom/client';
import { flushSync } from 'react-dom';
import 'uplot/dist/uPlot.min.css';

const CELL = { width: 80, height: 30, gap: 8 }; // a screen of 1,920 pixels, as Grafana divides it
const { panels, from, to, scheme } = window.dashboard;
const theme = createTheme({ colors: { mode: scheme } });
const timeRange = { from: dateTime(from), to: dateTime(to), raw: { from: dateTime(from), to: dateTime(to) } };

/** Frames as the data source for Prometheus returns them, with the settings of the panel. */
function framesOf(panel) {
  const { custom, ...defaults } = panel.fieldConfig.defaults;
  const frames = panel.targets.flatMap(target => target.series.map(({ name, points }) => toDataFrame({
    refId: target.refId,
    fields: [
      { name: 'Time', type: FieldType.time, values: points.map(point => point[0]), config: {} },
      {
        name: 'Value', type: FieldType.number, values: points.map(point => point[1]),
        config: {
          color: { mode: FieldColorModeId.PaletteClassic }, ...defaults, custom: { ...custom }, displayNameFromDS: name,
        },
      },
    ],
  })));
  frames.forEach((frame, seriesIndex) => {
    frame.fields[1].state = { seriesIndex };
    for (const field of frame.fields) {
      field.display = getDisplayProcessor({ field, theme, timeZone: 'utc' });
    }
  });
  cacheFieldDisplayNames(frames);
  return frames;
}

function Panel({ panel }) {
  const { x, y, w, h } = panel.gridPos;
  const width = w * CELL.width - CELL.gap, height = h * (CELL.height + CELL.gap) - CELL.gap;
  const frames = framesOf(panel);
  const body = (innerWidth, innerHeight) => frames.length === 0 ? 'No data' : e(TimeSeries, {
    frames, timeRange, timeZone: 'utc', width: innerWidth, height: innerHeight,
    legend: panel.options.legend,
  });
  const place = { position: 'absolute', left: x * CELL.width, top: y * (CELL.height + CELL.gap), width, height };
  return e('section', { id: `panel-${panel.id}`, style: place },
    e(PanelChrome, { title: panel.title, description: panel.description, width, height, children: body }));
}

function Row({ panel }) {
  const top = panel.gridPos.y * (CELL.height + CELL.gap);
  return e('h2', { style: { position: 'absolute', top, left: 8, fontSize: 18 } }, panel.title);
}

const UNITS = new Set(getValueFormats().flatMap(group => group.submenu.map(unit => unit.value)));
const NEAR = 60; // lines are blended with what is behind them

function isNear(colour, pixels, at) {
  return [16, 8, 0].every((shift, index) => Math.abs(pixels[at + index] - ((colour >> shift) & 255)) < NEAR);
}

/** What a person sees of a panel: its text, and how many of its series have their colour on the canvas,
 * and whether Grafana knows its unit. */
function drawnOf(panel) {
  const section = document.getElementById(`panel-${panel.id}`);
  const canvas = section.querySelector('canvas');
  const fields = framesOf(panel).map(frame => frame.fields[1]);
  const pixels = canvas ? canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data : [];
  const colours = new Set(fields.map(field => parseInt(field.display(1).color.slice(1), 16)));
  for (const colour of colours) {
    let at = 0;
    while (at < pixels.length && !(pixels[at + 3] === 255 && isNear(colour, pixels, at))) {
      at += 4;
    }
    if (at >= pixels.length) {
      colours.delete(colour);
    }
  }
  const hasUnit = UNITS.has(panel.fieldConfig.defaults.unit);
  return { title: panel.title, text: section.innerText, drawn: colours.size, hasUnit };
}

function Dashboard() {
  return e(ThemeContext.Provider, { value: theme }, e(GlobalStyles), ...panels.map(panel =>
    e(panel.type === 'row' ? Row : Panel, { key: panel.id, panel })));
}

const root = document.createElement('main');
document.body.append(root);
document.body.style.background = theme.colors.background.canvas;
flushSync(() => createRoot(root).render(e(Dashboard)));
setTimeout(() => {
  window.drawn = panels.filter(panel => panel.type !== 'row').map(drawnOf);
}, 2000);
