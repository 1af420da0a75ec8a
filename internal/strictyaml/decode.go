package strictyaml

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// Bounds on a document.
const (
	MaxSize  = 1 << 20 // bytes
	MaxDepth = 40
)

// Problem is one thing that does not fit.
type Problem struct {
	Line, Col int // from 1; 0 where the parser does not report it
	Message   string
}

// Lines are the places of values, by their path such as "bindings[0].members".
type Lines map[string]Place

// Place is where a value begins.
type Place struct{ Line, Col int }

// Decode decodes a document into what into points to. An empty document changes
// nothing.
func Decode(data []byte, into any) (Lines, []Problem) {
	if len(data) > MaxSize {
		return nil, []Problem{{Message: fmt.Sprintf("the file has %d bytes, the maximum is %d", len(data), MaxSize)}}
	}
	var doc, second yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		return nil, []Problem{syntax(err)}
	}
	if err := dec.Decode(&second); err == nil {
		return nil, []Problem{{Line: second.Line, Col: 1, Message: "there is a second document"}}
	} else if !errors.Is(err, io.EOF) {
		return nil, []Problem{syntax(err)}
	}
	d := &decoder{lines: Lines{}}
	d.value(doc.Content[0], reflect.ValueOf(into).Elem(), "", 0)
	return d.lines, d.problems
}

var lineOf = regexp.MustCompile(`^yaml: line (\d+): `)

func syntax(err error) Problem {
	text := err.Error()
	if m := lineOf.FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[1])
		return Problem{Line: line, Col: 1, Message: text[len(m[0]):]}
	}
	return Problem{Message: strings.TrimPrefix(text, "yaml: ")}
}

type decoder struct {
	lines    Lines
	problems []Problem
}

// maxProblems bounds what is reported of one document.
const maxProblems = 100

func (d *decoder) at(n *yaml.Node, format string, args ...any) {
	if len(d.problems) < maxProblems {
		d.problems = append(d.problems, Problem{n.Line, n.Column, fmt.Sprintf(format, args...)})
	}
}

// fits reports a node that is not what is wanted.
func (d *decoder) fits(n *yaml.Node, ok bool, path, want string) bool {
	if !ok {
		d.at(n, "%sis not %s", subject(path), want)
	}
	return ok
}

func subject(path string) string {
	if path == "" {
		return "the document "
	}
	return path + " "
}

var timeType = reflect.TypeFor[time.Time]()

func (d *decoder) value(n *yaml.Node, v reflect.Value, path string, depth int) {
	switch {
	case depth > MaxDepth:
		d.at(n, "%snests too deep", subject(path))
		return
	case n.Kind == yaml.AliasNode || n.Anchor != "":
		d.at(n, "%shas an anchor or an alias, which are not taken", subject(path))
		return
	case v.Kind() != reflect.Interface && isNull(n):
		return // as if it were not there
	}
	d.lines[path] = Place{n.Line, n.Column}
	switch v.Kind() {
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		d.value(n, p.Elem(), path, depth)
		v.Set(p)
	case reflect.Struct:
		if v.Type() == timeType {
			t, err := time.Parse(time.RFC3339, n.Value)
			if d.fits(n, isText(n) && err == nil, path, "a time such as 2026-01-31T00:00:00Z") {
				v.Set(reflect.ValueOf(t))
			}
			return
		}
		d.structure(n, v, path, depth)
	case reflect.Slice:
		if !d.fits(n, isList(n), path, "a list") {
			return
		}
		list := reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content))
		for i, item := range n.Content {
			d.element(item, list.Index(i), fmt.Sprintf("%s[%d]", path, i), depth+1)
		}
		v.Set(list)
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		d.fields(n, path, func(key, item *yaml.Node, at string) {
			x := reflect.New(v.Type().Elem()).Elem()
			d.element(item, x, at, depth+1)
			m.SetMapIndex(reflect.ValueOf(key.Value).Convert(v.Type().Key()), x)
		})
		v.Set(m)
	case reflect.String:
		if d.fits(n, isText(n), path, "a string") {
			v.SetString(n.Value)
		}
	case reflect.Bool:
		var b bool
		err := n.Decode(&b)
		if d.fits(n, n.Kind == yaml.ScalarNode && n.ShortTag() == "!!bool" && err == nil, path, "true or false") {
			v.SetBool(b)
		}
	case reflect.Interface:
		if x := d.any(n, path, depth); x != nil {
			v.Set(reflect.ValueOf(x))
		}
	default:
		panic("strictyaml: cannot decode into " + v.Type().String())
	}
}

// element decodes what a list or a map has. It has it: a null is no absence there.
func (d *decoder) element(n *yaml.Node, v reflect.Value, path string, depth int) {
	if v.Kind() != reflect.Interface && isNull(n) {
		d.at(n, "%s is null", path)
		return
	}
	d.value(n, v, path, depth)
}

// A tag of its own makes a node something else than it looks like.
func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }
func isMap(n *yaml.Node) bool  { return n.Kind == yaml.MappingNode && n.ShortTag() == "!!map" }
func isList(n *yaml.Node) bool { return n.Kind == yaml.SequenceNode && n.ShortTag() == "!!seq" }
func isText(n *yaml.Node) bool {
	return n.Kind == yaml.ScalarNode && (n.ShortTag() == "!!str" || n.ShortTag() == "!!timestamp")
}

// fields calls f for the entries of a map.
func (d *decoder) fields(n *yaml.Node, path string, f func(key, item *yaml.Node, at string)) {
	if !d.fits(n, isMap(n), path, "a map") {
		return
	}
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, item := n.Content[i], n.Content[i+1]
		at := strings.TrimPrefix(path+"."+key.Value, ".")
		switch {
		case key.Kind != yaml.ScalarNode || key.ShortTag() != "!!str":
			d.at(key, "%shas a key that is no string", subject(path))
		case seen[key.Value]:
			d.at(key, "%s is there twice", at)
		default:
			seen[key.Value] = true
			f(key, item, at)
		}
	}
}

func (d *decoder) structure(n *yaml.Node, v reflect.Value, path string, depth int) {
	byName := map[string]reflect.Value{}
	for i := range v.NumField() {
		name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
		if name != "" && name != "-" {
			byName[name] = v.Field(i)
		}
	}
	d.fields(n, path, func(key, item *yaml.Node, at string) {
		field, ok := byName[key.Value]
		if !ok {
			d.at(key, "%s is not known", at)
			return
		}
		d.value(item, field, at, depth+1)
	})
}

// any decodes a value as encoding/json does with UseNumber.
func (d *decoder) any(n *yaml.Node, path string, depth int) any {
	switch {
	case isMap(n):
		m := map[string]any{}
		d.fields(n, path, func(key, item *yaml.Node, at string) {
			var x any
			d.value(item, reflect.ValueOf(&x).Elem(), at, depth+1)
			m[key.Value] = x
		})
		return m
	case isList(n):
		list := make([]any, len(n.Content))
		for i, item := range n.Content {
			d.value(item, reflect.ValueOf(&list[i]).Elem(), fmt.Sprintf("%s[%d]", path, i), depth+1)
		}
		return list
	case n.Kind == yaml.ScalarNode:
		return d.scalar(n, path)
	}
	d.fits(n, false, path, "a value that JSON has")
	return nil
}

func (d *decoder) scalar(n *yaml.Node, path string) any {
	switch n.ShortTag() {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if err := n.Decode(&b); err != nil {
			d.fits(n, false, path, "true or false")
		}
		return b
	case "!!int", "!!float":
		return d.number(n, path)
	case "!!str", "!!timestamp":
		if n.Style == 0 && json.Valid([]byte(n.Value)) {
			return d.number(n, path) // too large for the parser, which takes it for text
		}
		return n.Value
	}
	d.fits(n, false, path, "a value that JSON has")
	return nil
}

func (d *decoder) number(n *yaml.Node, path string) any {
	if json.Valid([]byte(n.Value)) {
		if x, err := strconv.ParseFloat(n.Value, 64); err == nil && !math.IsInf(x, 0) {
			return json.Number(n.Value)
		}
	}
	var i int64
	if n.ShortTag() == "!!int" && n.Decode(&i) == nil {
		return json.Number(strconv.FormatInt(i, 10))
	}
	var f float64
	if err := n.Decode(&f); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
	}
	d.fits(n, false, path, "a number that JSON has")
	return nil
}
