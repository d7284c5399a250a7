package main

import (
	"bytes"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// table prints aligned columns under a heading.
type table struct {
	heading []string
	rows    [][]string
}

func (t *table) add(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = printable(fmt.Sprint(c))
	}
	t.rows = append(t.rows, row)
}

// writeTo prints nothing for an empty table.
func (t *table) writeTo(w io.Writer) error {
	if len(t.rows) == 0 {
		return nil
	}
	var out bytes.Buffer
	tw := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.heading}, t.rows...) {
		fmt.Fprintln(tw, strings.Join(row, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for line := range strings.Lines(out.String()) {
		if _, err := fmt.Fprintln(w, strings.TrimRight(line, " \n")); err != nil {
			return err
		}
	}
	return nil
}

// printable quotes text that would disturb a terminal or a table: it may come from any key or any machine.
func printable(text string) string {
	if text == "" {
		return "-"
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(text)
	}
	return text
}

// counted is a number of things: 1 part, 2 parts.
func counted(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// percent prints a share of 1.
func percent(share float64) string { return fmt.Sprintf("%.2f%%", 100*share) }

// writeJSON prints a JSON answer as it came, ending in one newline.
func writeJSON(w io.Writer, body []byte) error {
	_, err := w.Write(append(bytes.TrimRight(body, "\n"), '\n'))
	return err
}

// writeTables prints tables with a blank line between two of them.
func writeTables(w io.Writer, tables ...*table) error {
	printed := false
	for _, t := range tables {
		if len(t.rows) == 0 {
			continue
		}
		if printed {
			if _, err := fmt.Fprintln(w); err != nil {
				return err
			}
		}
		printed = true
		if err := t.writeTo(w); err != nil {
			return err
		}
	}
	return nil
}
