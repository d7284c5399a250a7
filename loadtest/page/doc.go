// Package page writes the report of a load test as one HTML page that needs nothing else: charts are drawn as SVG here, with the events on the time
// line, in colours that follow the reader's light or dark setting.
//
// Everything but Write is pure. Text from outside (names, errors, keys) reaches the page only through html/template, which escapes it.
package page
