package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of an answer, in bytes.
const (
	maxAnswer  = 8000 // all of it, in JSON
	maxMessage = 1500 // of an error
	maxText    = 300  // of one text of a row
	maxName    = 253  // of names, which are not longer
	maxValue   = 120  // of one of many fields
	maxSingle  = 3500 // of all values of one row
	maxColumn  = 60   // of the name of a column
)

// maxRows bounds the rows of an answer.
const (
	maxRows     = 100
	defaultRows = 25
)

// Freshness says of which members the answer may be old or incomplete.
type Freshness struct {
	Fresh    bool       `json:"fresh" jsonschema:"true: all that was looked at is up to date"`
	NotFresh int        `json:"notFresh,omitempty" jsonschema:"how many kinds of members, all together, may be old or incomplete"`
	Members  []NotFresh `json:"members,omitempty" jsonschema:"the first of them"`
	Absent   []string   `json:"absent,omitempty" jsonschema:"the first members that nobody answers for at the moment"`
	AbsentOf int        `json:"absentOf,omitempty" jsonschema:"how many members nobody answers for"`
}

// NotFresh is a kind of a member that may be old or incomplete.
type NotFresh struct {
	Member string `json:"member"`
	Kind   string `json:"kind,omitempty"`
	State  string `json:"state"`
	Age    string `json:"age,omitempty" jsonschema:"time since the last contact"`
}

const maxStale = 3 // that are listed

// newFreshness returns the freshness of what was looked at: what is not fresh, and how many more.
func newFreshness(stale []NotFresh, more int, absent ...string) Freshness {
	f := Freshness{NotFresh: len(stale) + more, AbsentOf: len(absent)}
	f.Fresh = f.NotFresh == 0 && f.AbsentOf == 0
	for _, n := range stale[:min(len(stale), maxStale)] {
		f.Members = append(f.Members, NotFresh{plain(n.Member, maxName), plain(n.Kind, maxValue), plain(n.State, maxValue), plain(n.Age, maxValue)})
	}
	for _, name := range absent[:min(len(absent), maxStale)] {
		f.Absent = append(f.Absent, plain(name, maxName))
	}
	return f
}

// Cut says what is left out of the answer, and how to ask for it.
type Cut struct {
	Left     int    `json:"left,omitempty" jsonschema:"how many rows come after those of this answer; absent: none, or more is set"`
	More     bool   `json:"more,omitempty" jsonschema:"there may be more rows: nobody has counted them"`
	Texts    int    `json:"texts,omitempty" jsonschema:"how many texts of this answer are shortened: they end with an ellipsis"`
	Continue string `json:"continue,omitempty" jsonschema:"call again with the same arguments and this one for the next rows"`
	Offset   int    `json:"offset,omitempty" jsonschema:"call again with the same arguments and this one for the next rows"`
	How      string `json:"how,omitempty" jsonschema:"how to ask for the rest"`
}

// newCut returns what is left out, nil for nothing.
func newCut(c Cut) *Cut {
	if c.Left == 0 && c.Texts == 0 && c.Continue == "" {
		return nil
	}
	var how []string
	switch {
	case c.Continue != "":
		how = append(how, "call again with the same arguments and continue")
	case c.Offset > 0:
		how = append(how, "call again with the same arguments and offset")
	case c.Left > 0:
		how = append(how, "select less")
	}
	if c.Texts > 0 {
		how = append(how, "texts are longer for fewer rows")
	}
	c.How = strings.Join(how, "; ")
	return &c
}

// fit returns how many of n rows an answer holds: build returns it with the first k.
func fit[Out any](n int, build func(k int) *Out) (k int, out *Out, err error) {
	size := func(k int) int {
		text, e := json.Marshal(build(k))
		if e != nil {
			err = e
		}
		return len(text)
	}
	n = min(n, maxAnswer/4) // a row has more bytes
	if size(n) <= maxAnswer && err == nil {
		return n, build(n), nil
	}
	k = sort.Search(n, func(k int) bool { return size(k+1) > maxAnswer })
	if err != nil {
		return 0, nil, fmt.Errorf("encoding the answer: %w", err)
	}
	if k == 0 {
		return 0, nil, fmt.Errorf("a row does not fit an answer of %d bytes: ask for fewer fields", maxAnswer)
	}
	return k, build(k), nil
}

// texts shortens texts from outside and counts those that were shortened.
type texts struct{ cut int }

// text is plain, and counts what it shortens.
func (t *texts) text(s string, limit int) string {
	out, whole := shorten(s, limit)
	if !whole {
		t.cut++
	}
	return out
}

// json is text for a value in JSON: a string is given as it is, others as JSON without blanks.
func (t *texts) json(raw json.RawMessage, limit int) string {
	var s string
	if json.Unmarshal(raw, &s) == nil && len(raw) > 0 && raw[0] == '"' {
		return t.text(s, limit)
	}
	var compact bytes.Buffer
	if json.Compact(&compact, raw) != nil {
		return t.text(string(raw), limit)
	}
	return t.text(compact.String(), limit)
}

// plain returns a text of at most limit bytes in JSON, which ends with … where it was longer, and without what is not visible.
func plain(s string, limit int) string {
	out, _ := shorten(s, limit)
	return out
}

func shorten(s string, limit int) (out string, whole bool) {
	const ellipsis = "…"
	s = visible(s)
	size, end := 0, 0 // of all before, and where it ends if it is cut
	for i, r := range s {
		if size <= limit-len(ellipsis) {
			end = i
		}
		if size += sizeInJSON(r); size > limit {
			return s[:end] + ellipsis, false
		}
	}
	return s, true
}

// sizeInJSON returns how many bytes encoding/json makes of what is visible.
func sizeInJSON(r rune) int {
	switch r {
	case '"', '\\', '\n', '\t':
		return 2
	case '<', '>', '&', '\u2028', '\u2029':
		return 6
	}
	return utf8.RuneLen(r)
}

// visible replaces what is not visible: text that a person who looks at an object does not see must not reach an assistant either.
func visible(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t' || r == ' ':
			return r
		case !unicode.IsGraphic(r), unicode.Is(unicode.Cf, r), unicode.Is(unicode.Variation_Selector, r), unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r):
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// rowsOf returns how many rows are asked for.
func rowsOf(limit int) (int, error) {
	switch {
	case limit == 0:
		return defaultRows, nil
	case limit < 0 || limit > maxRows:
		return 0, badArgument("limit", "is not a number from 1 to %d", maxRows)
	}
	return limit, nil
}

// after returns what comes after an offset.
func after[T any](all []T, offset int) ([]T, error) {
	if offset < 0 {
		return nil, badArgument("offset", "is negative")
	}
	return all[min(offset, len(all)):], nil
}

// position is where an answer begins: after how many rows, and by which token of the query API.
type position struct {
	before int
	token  string
}

// positionOf parses continue.
func positionOf(text string) (position, error) {
	if text == "" {
		return position{}, nil
	}
	n, token, ok := strings.Cut(text, ".")
	before, err := strconv.Atoi(n)
	if !ok || err != nil || before < 0 || token == "" {
		return position{}, badArgument("continue", "is not of an answer")
	}
	return position{before, token}, nil
}

// next returns continue for what comes after an answer of some rows, "" if nothing does.
func (p position) next(shown int, token string) string {
	if token == "" {
		return ""
	}
	return strconv.Itoa(p.before+shown) + "." + token
}

// left returns how many rows come after it.
func (p position) left(total, shown int) int { return max(total-p.before-shown, 0) }
