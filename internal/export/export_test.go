package export_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/parquet-go/parquet-go"

	"federator.dev/federator/internal/export"
	"federator.dev/federator/internal/rows"
	"federator.dev/federator/test/seed"
)

// text is rows that are read from a response.
type text struct {
	in     *rows.Reader
	name   string
	closed *int
}

func (x text) Name() string { return x.name }

func (x text) Header() *rows.Header { return x.in.Header() }

func (x text) Next(context.Context) (*rows.Row, error) { return x.in.Next() }

func (x text) Close() error {
	*x.closed++
	return nil
}

var columns = []rows.Column{
	{Name: "member", Type: rows.String},
	{Name: "namespace", Type: rows.String},
	{Name: "name", Type: rows.String},
	{Name: "uid", Type: rows.String},
	{Name: "created", Type: rows.Timestamp},
	{Name: "labels", Type: rows.Labels},
	{Name: "n", Type: rows.Int},
	{Name: "f", Type: rows.Number},
	{Name: "b", Type: rows.Bool},
	{Name: "cpu", Type: rows.Quantity},
	{Name: "CPU_number", Type: rows.String},
	{Name: "list", Type: rows.List},
	{Name: "doc", Type: rows.JSON},
}

func open(t testing.TB, name, kind, revision string, stale bool, lines ...string) text {
	t.Helper()
	h := rows.Header{Metadata: rows.Metadata{ResourceVersion: revision}, Objects: kind, Members: []string{"a/b"}, Columns: columns}
	if stale {
		h.NotSynced = []rows.NotSynced{{Member: "a/b", Kind: kind, State: "Stale", Reason: "it is unreachable"}}
	}
	head, err := rows.AppendHeader(nil, &h)
	if err != nil {
		t.Fatal(err)
	}
	body := string(head) + strings.Join(lines, "\n")
	if len(lines) > 0 {
		body += "\n"
	}
	in, err := rows.NewReader(strings.NewReader(body + string(rows.AppendEnd(nil, len(lines)))))
	if err != nil {
		t.Fatal(err)
	}
	return text{in, name, new(int)}
}

const (
	full  = `{"cells":["a/b","x","one","u1","2026-01-02T03:04:05.5Z",{"app":"web","tier":"a \"b\""},-7,0.5,true,"250m","own",["i1","i\n2"],"{\"a\":[1]}"]}`
	empty = `{"cells":["a/b",null,"two","u2",null,{},null,null,null,null,null,null,null],"redacted":[10,12],"invalid":[6]}`
	none  = `{"cells":["a/b","","three","u3","1969-12-31T23:59:59Z",{"app":"","b":"1"},0,0,false,"0","",[],"\"\""]}`
)

func TestWrite_NDJSON(t *testing.T) {
	var out bytes.Buffer
	s, err := export.Write(t.Context(), &out, export.Options{Format: export.NDJSON}, open(t, "secrets", "Secret", "7", false, full, empty, none))
	if err != nil || s.Rows != 3 || s.Revision != "7" || s.Redacted["doc"] != 1 || s.Redacted["CPU_number"] != 1 || s.Invalid["n"] != 1 {
		t.Fatalf("%+v, %v", s, err)
	}
	want := `{"member":"a/b","namespace":"x","name":"one","uid":"u1","created":"2026-01-02T03:04:05.5Z","labels":{"app":"web","tier":"a \"b\""},"n":-7,"f":0.5,"b":true,"cpu":"250m","cpu_number_2":0.25,"CPU_number":"own","list":["i1","i\n2"],"doc":{"a":[1]},"redacted":[]}
{"member":"a/b","namespace":null,"name":"two","uid":"u2","created":null,"labels":{},"n":null,"f":null,"b":null,"cpu":null,"cpu_number_2":null,"CPU_number":null,"list":null,"doc":null,"redacted":["CPU_number","doc"]}
{"member":"a/b","namespace":"","name":"three","uid":"u3","created":"1969-12-31T23:59:59Z","labels":{"app":"","b":"1"},"n":0,"f":0,"b":false,"cpu":"0","cpu_number_2":0,"CPU_number":"","list":[],"doc":"","redacted":[]}
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

// row is how parquet-go itself reads what was written.
type row struct {
	Member     string            `parquet:"member"`
	Namespace  *string           `parquet:"namespace,optional"`
	Name       string            `parquet:"name"`
	UID        string            `parquet:"uid"`
	Created    *time.Time        `parquet:"created,optional,timestamp(microsecond)"`
	Labels     map[string]string `parquet:"labels"`
	N          *int64            `parquet:"n,optional"`
	F          *float64          `parquet:"f,optional"`
	B          *bool             `parquet:"b,optional"`
	CPU        *string           `parquet:"cpu,optional"`
	CPUNumber2 *float64          `parquet:"cpu_number_2,optional"`
	CPUNumber  *string           `parquet:"CPU_number,optional"`
	List       []string          `parquet:"list,optional,list"`
	Doc        *string           `parquet:"doc,optional,json"`
	Redacted   []string          `parquet:"redacted,list"`
}

func readParquet(t testing.TB, data []byte) (*parquet.File, []row) {
	t.Helper()
	f, err := parquet.OpenFile(bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := parquet.Read[row](bytes.NewReader(data), int64(len(data)))
	if err != nil {
		t.Fatal(err)
	}
	return f, got
}

func TestWrite_Parquet(t *testing.T) {
	var out bytes.Buffer
	if _, err := export.Write(t.Context(), &out, export.Options{Format: export.Parquet}, open(t, "secrets", "Secret", "7", false, full, empty, none)); err != nil {
		t.Fatal(err)
	}
	f, got := readParquet(t, out.Bytes())
	var names []string
	for _, c := range f.Schema().Fields() {
		names = append(names, c.Name())
	}
	if want := []string{"member", "namespace", "name", "uid", "created", "labels", "n", "f", "b", "cpu", "cpu_number_2", "CPU_number", "list", "doc", "redacted"}; !slices.Equal(names, want) {
		t.Errorf("columns %v, want %v", names, want)
	}
	as := func(v any) string {
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	want := []string{
		`{"Member":"a/b","Namespace":"x","Name":"one","UID":"u1","Created":"2026-01-02T03:04:05.5Z","Labels":{"app":"web","tier":"a \"b\""},"N":-7,"F":0.5,"B":true,"CPU":"250m","CPUNumber2":0.25,"CPUNumber":"own","List":["i1","i\n2"],"Doc":"{\"a\":[1]}","Redacted":[]}`,
		`{"Member":"a/b","Namespace":null,"Name":"two","UID":"u2","Created":null,"Labels":{},"N":null,"F":null,"B":null,"CPU":null,"CPUNumber2":null,"CPUNumber":null,"List":null,"Doc":null,"Redacted":["CPU_number","doc"]}`,
		`{"Member":"a/b","Namespace":"","Name":"three","UID":"u3","Created":"1969-12-31T23:59:59Z","Labels":{"app":"","b":"1"},"N":0,"F":0,"B":false,"CPU":"0","CPUNumber2":0,"CPUNumber":"","List":[],"Doc":"\"\"","Redacted":[]}`,
	}
	for i, w := range want {
		if i >= len(got) || as(got[i]) != w {
			t.Errorf("row %d is\n%s, want\n%s", i, as(got[i]), w)
		}
	}
	value, ok := f.Lookup(export.SummaryKey)
	var s export.Summary
	if err := json.Unmarshal([]byte(value), &s); err != nil || !ok || s.Rows != 3 || s.Revision != "7" || s.Kind != "Secret" || s.Redacted["doc"] != 1 || s.Invalid["n"] != 1 || !slices.Equal(s.Members, []string{"a/b"}) {
		t.Errorf("%s, %v", value, err)
	}
}

// TestWrite_FormatsAgree on random rows, across batches and row groups.
func TestWrite_FormatsAgree(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed.Of(t), 0))
	var lines []string
	text := func() string { return fmt.Sprintf("%q", strings.Repeat("x", rng.IntN(4))+fmt.Sprint(rng.IntN(1000))) }
	maybe := func(s string) string {
		if rng.IntN(3) == 0 {
			return "null"
		}
		return s
	}
	for i := range 101_000 {
		labels, list := []string{}, []string{}
		for j := range rng.IntN(4) {
			labels = append(labels, fmt.Sprintf("%q:%s", fmt.Sprint("l", j), text()))
			list = append(list, text())
		}
		lines = append(lines, fmt.Sprintf(`{"cells":["a/b",%s,"n%d","u%d",%s,{%s},%s,%s,%s,%s,%s,%s,%s]}`, maybe(text()), i, i,
			maybe(fmt.Sprintf("%q", time.Unix(rng.Int64N(1<<31), 0).UTC().Format(time.RFC3339))), strings.Join(labels, ","), maybe(fmt.Sprint(rng.Int64())),
			maybe("0.25"), maybe(fmt.Sprint(rng.IntN(2) == 0)), maybe(`"100Mi"`), maybe(text()), maybe("["+strings.Join(list, ",")+"]"), maybe(`"[]"`)))
	}
	var asJSON, asParquet bytes.Buffer
	for format, out := range map[export.Format]*bytes.Buffer{export.NDJSON: &asJSON, export.Parquet: &asParquet} {
		if _, err := export.Write(t.Context(), out, export.Options{Format: format}, open(t, "pods", "Pod", "7", false, lines...)); err != nil {
			t.Fatal(err)
		}
	}
	f, got := readParquet(t, asParquet.Bytes())
	if len(f.RowGroups()) < 2 {
		t.Errorf("%d row groups", len(f.RowGroups()))
	}
	i := 0
	for line := range bytes.Lines(asJSON.Bytes()) {
		var want struct {
			Namespace, CPU *string
			Name           string
			Created        *time.Time
			Labels         map[string]string
			N              *int64
			B              *bool
			List           []string
			Number         *float64 `json:"cpu_number_2"`
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatal(err)
		}
		g := got[i]
		i++
		wantText := fmt.Sprint(str(want.Namespace), want.Name, str(want.Created), want.Labels, str(want.N), str(want.B), want.List, str(want.CPU), str(want.Number))
		if gotText := fmt.Sprint(str(g.Namespace), g.Name, str(g.Created), g.Labels, str(g.N), str(g.B), g.List, str(g.CPU), str(g.CPUNumber2)); gotText != wantText {
			t.Fatalf("row %d: Parquet has %s, NDJSON %s", i, gotText, wantText)
		}
	}
	if i != len(got) || i != len(lines) {
		t.Errorf("%d, %d and %d rows", i, len(got), len(lines))
	}
}

func str[T any](p *T) string {
	if p == nil {
		return "null"
	}
	return fmt.Sprint(*p)
}

func TestWrite_RefusesCellsOfOtherTypes(t *testing.T) {
	good := []string{`"a/b"`, `"x"`, `"n"`, `"u"`, `"2026-01-02T03:04:05Z"`, `{}`, `1`, `0.5`, `true`, `"1"`, `"x"`, `[]`, `"1"`}
	for i, bad := range []string{`1`, `[]`, `{}`, `null1`, `7`, `[]`, `"x"`, `"x"`, `1`, `"x"`, `1`, `"x"`, `1`} {
		cells := slices.Clone(good)
		cells[i] = bad
		for _, format := range []export.Format{export.NDJSON, export.Parquet} {
			_, err := export.Write(t.Context(), io.Discard, export.Options{Format: format}, open(t, "pods", "Pod", "7", false, `{"cells":[`+strings.Join(cells, ",")+`]}`))
			if !errors.Is(err, rows.ErrMalformed) {
				t.Errorf("%s as %s in %s: %v", bad, columns[i].Type, format, err)
			}
		}
	}
	if _, err := export.Write(t.Context(), io.Discard, export.Options{Format: "csv"}, open(t, "pods", "Pod", "7", false)); !errors.Is(err, export.ErrFormat) {
		t.Errorf("csv: %v", err)
	}
}

// TestWrite_LabelsOfAnyName: members need not be real API servers, and one object must not end the exports of all.
func TestWrite_LabelsOfAnyName(t *testing.T) {
	const line = `{"cells":["a/b","x","one","u1",null,{"a\"b\n":"x","é\u003c":"y"},null,null,null,null,null,null,null]}`
	var out bytes.Buffer
	if _, err := export.Write(t.Context(), &out, export.Options{Format: export.Parquet}, open(t, "pods", "Pod", "7", false, line)); err != nil {
		t.Fatal(err)
	}
	opened, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, v := range firstRow(t, opened) {
		if opened.Schema().Columns()[v.Column()][0] == "labels" && opened.Schema().Columns()[v.Column()][2] == "key" {
			keys = append(keys, v.String())
		}
	}
	if want := []string{"a\"b\n", "é<"}; !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
}

func firstRow(t *testing.T, f *parquet.File) parquet.Row {
	t.Helper()
	in := f.RowGroups()[0].Rows()
	defer in.Close()
	row := make([]parquet.Row, 1)
	if n, err := in.ReadRows(row); n != 1 {
		t.Fatal(err)
	}
	return row[0]
}

// repeated is one row so many times.
type repeated struct {
	text
	row  rows.Row
	left int
}

func (r *repeated) Next(context.Context) (*rows.Row, error) {
	if r.left--; r.left < 0 {
		return nil, io.EOF
	}
	return &r.row, nil
}

// TestWrite_HoldsAFewHugeRows: a row group is held until it is written, and rows with documents may have a megabyte each.
func TestWrite_HoldsAFewHugeRows(t *testing.T) {
	const n = 160
	from := &repeated{text: open(t, "pods", "Pod", "7", false), left: n}
	for range columns {
		from.row.Cells = append(from.row.Cells, nil)
	}
	for i := range 4 {
		from.row.Cells[i] = []byte(`"x"`)
	}
	from.row.Cells[len(columns)-1] = []byte(`"[` + strings.Repeat("0,", 1<<19) + `0]"`)
	var out bytes.Buffer
	if _, err := export.Write(t.Context(), &out, export.Options{Format: export.Parquet}, from); err != nil {
		t.Fatal(err)
	}
	f, err := parquet.OpenFile(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if groups := f.RowGroups(); len(groups) != 2 || f.NumRows() != n {
		t.Errorf("%d row groups of %d rows", len(groups), f.NumRows())
	}
}

// source gives what a test says.
type source map[string]func() (export.Rows, error)

func (s source) Open(_ context.Context, kind string) (export.Rows, error) { return s[kind]() }

// cut is rows that end early.
type cut struct{ text }

func (c cut) Next(ctx context.Context) (*rows.Row, error) {
	row, err := c.text.Next(ctx)
	if errors.Is(err, io.EOF) {
		err = rows.ErrIncomplete
	}
	return row, err
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		names = append(names, f.Name())
	}
	return names
}

func TestWriteDirectory_IsAllOrNothing(t *testing.T) {
	pods, nodes := open(t, "pods", "Pod", "7", false, full), open(t, "nodes", "Node", "7", false, full, empty)
	dir := filepath.Join(t.TempDir(), "a", "b")
	o := export.Options{Format: export.Parquet}
	m, err := export.WriteDirectory(t.Context(), dir, o, source{
		"po": func() (export.Rows, error) { return pods, nil }, "no": func() (export.Rows, error) { return nodes, nil },
	}, []string{"po", "no"})
	if err != nil || m.Revision != "7" || len(m.Files) != 2 || m.Files[1].Name != "nodes.parquet" || m.Files[1].Rows != 2 || *pods.closed != 1 || *nodes.closed != 1 {
		t.Fatalf("%+v, %v", m, err)
	}
	want := []string{"export.json", "nodes.parquet", "pods.parquet"}
	if got := files(t, dir); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	before, err := os.ReadFile(filepath.Join(dir, "pods.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	failed := errors.New("failed")
	for name, second := range map[string]func() (export.Rows, error){
		"cannot be opened": func() (export.Rows, error) { return nil, failed },
		"is cut":           func() (export.Rows, error) { return cut{open(t, "nodes", "Node", "7", false, full)}, nil },
		"another revision": func() (export.Rows, error) { return open(t, "nodes", "Node", "8", false, full), nil },
		"incomplete":       func() (export.Rows, error) { return open(t, "nodes", "Node", "7", true, full), nil },
		"the same file":    func() (export.Rows, error) { return open(t, "pods", "Pod", "7", false, full), nil },
		"no name":          func() (export.Rows, error) { return open(t, "../x", "Pod", "7", false, full), nil },
	} {
		for _, o := range []export.Options{{Format: export.Parquet, Overwrite: true}, {Format: export.NDJSON, Overwrite: true}} {
			m, err := export.WriteDirectory(t.Context(), dir, o, source{
				"po": func() (export.Rows, error) { return open(t, "pods", "Pod", "7", false, full, full), nil }, "no": second,
			}, []string{"po", "no"})
			if err == nil || m != nil {
				t.Errorf("%s: no error", name)
			}
			if got := files(t, dir); !slices.Equal(got, want) {
				t.Errorf("%s: %q", name, got)
			}
		}
	}
	if after, err := os.ReadFile(filepath.Join(dir, "pods.parquet")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("a file has changed: %v", err)
	}
	stale := source{"po": func() (export.Rows, error) { return open(t, "pods", "Pod", "7", true, full), nil }}
	if _, err := export.WriteDirectory(t.Context(), dir, o, stale, []string{"po"}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
	o.Overwrite = true
	_, err = export.WriteDirectory(t.Context(), dir, o, stale, []string{"po"})
	if missing, is := errors.AsType[*export.IncompleteError](err); !is || missing.NotSynced[0].Member != "a/b" {
		t.Errorf("incomplete: %v", err)
	}
	o.AllowIncomplete = true
	if m, err := export.WriteDirectory(t.Context(), dir, o, stale, []string{"po"}); err != nil || len(m.Files[0].NotSynced) != 1 {
		t.Errorf("incomplete, allowed: %+v, %v", m, err)
	}
}

// two are sources of two kinds, of which the second does something before it is opened.
func two(t *testing.T, meanwhile func()) source {
	return source{
		"po": func() (export.Rows, error) { return open(t, "pods", "Pod", "7", false, full), nil },
		"no": func() (export.Rows, error) {
			meanwhile()
			return open(t, "nodes", "Node", "7", false, full), nil
		},
	}
}

// TestWriteDirectory_ReplacesNothingOfAnother: what appears meanwhile is of another process, and stays.
func TestWriteDirectory_ReplacesNothingOfAnother(t *testing.T) {
	for _, name := range []string{"pods.ndjson", "nodes.ndjson", export.ManifestName} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		_, err := export.WriteDirectory(t.Context(), dir, export.Options{Format: export.NDJSON}, two(t, func() {
			if err := os.WriteFile(path, []byte("another"), 0o600); err != nil {
				t.Fatal(err)
			}
		}), []string{"po", "no"})
		if !errors.Is(err, os.ErrExist) {
			t.Errorf("%s: %v", name, err)
		}
		if got := files(t, dir); !slices.Equal(got, []string{name}) {
			t.Errorf("%s: %q", name, got)
		}
		if text, err := os.ReadFile(path); string(text) != "another" {
			t.Errorf("%s has %.20q, %v", name, text, err)
		}
	}
}

// TestWriteDirectory_HasNoManifestOfOtherFiles, whatever ends it while files get their names.
func TestWriteDirectory_HasNoManifestOfOtherFiles(t *testing.T) {
	dir := t.TempDir()
	o := export.Options{Format: export.NDJSON, Overwrite: true}
	if _, err := export.WriteDirectory(t.Context(), dir, o, two(t, func() {}), []string{"po", "no"}); err != nil {
		t.Fatal(err)
	}
	nodes := filepath.Join(dir, "nodes.ndjson")
	if err := errors.Join(os.Remove(nodes), os.MkdirAll(filepath.Join(nodes, "full"), 0o755)); err != nil { // which nothing replaces
		t.Fatal(err)
	}
	if _, err := export.WriteDirectory(t.Context(), dir, o, two(t, func() {}), []string{"po", "no"}); err == nil {
		t.Error("a folder was replaced")
	}
	if got := files(t, dir); !slices.Equal(got, []string{"nodes.ndjson", "pods.ndjson"}) {
		t.Errorf("%q", got)
	}
}
