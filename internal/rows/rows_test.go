package rows_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"federator.dev/federator/internal/rows"
)

func response(t testing.TB, lines ...string) string {
	t.Helper()
	head, err := rows.AppendHeader(nil, &rows.Header{
		Metadata: rows.Metadata{ResourceVersion: "7"}, Objects: "Pod", Members: []string{"a/b"},
		Columns: []rows.Column{{Name: "member", Type: rows.String}, {Name: "n", Type: rows.Int}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(head) + strings.Join(lines, "\n") + "\n"
}

// read reads all rows, each as "cell cell redacted invalid".
func read(text string) (out []string, err error) {
	in, err := rows.NewReader(strings.NewReader(text))
	if err != nil {
		return nil, err
	}
	for {
		row, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		out = append(out, fmt.Sprintf("%s %s %v %v", row.Cells[0], row.Cells[1], row.Redacted, row.Invalid))
	}
}

func TestReader_ReadsWhatWasWritten(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	text := response(t, `{"cells":["a",1]}`, `{"cells":["`+long+`",null],"redacted":[0],"invalid":[1]}`, `{"cells":["b",null]}`) + string(rows.AppendEnd(nil, 3))
	got, err := read(text)
	if want := []string{`"a" 1 [] []`, `"` + long + `"  [0] [1]`, `"b"  [] []`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %.300q", err, got)
	}
	for n := range text {
		if n > 3000 && n < len(text)-3000 {
			continue // inside of the long cell
		}
		if _, err := read(text[:n]); !errors.Is(err, rows.ErrIncomplete) {
			t.Fatalf("cut after %d of %d bytes: %v", n, len(text), err)
		}
	}
}

func TestReader_RefusesWhatIsNoRow(t *testing.T) {
	end := `{"end":{"rows":1}}`
	for _, lines := range [][]string{
		{`{"cells":["a"]}`, end},
		{`{"cells":["a",1,2]}`, end},
		{`{"cells":["a",1],"redacted":[2]}`, end},
		{`{"cells":["a",1],"redacted":[1,1]}`, end},
		{`{"cells":["a",1],"invalid":["1"]}`, end},
		{`{"cells":["a",1],"other":1}`, end},
		{`{"cells":["a",1]`, end},
		{`{"cells":["a",1]}`, end, `{"cells":["a",1]}`},
		{`{"cells":["a",1]}`, `{"end":{"rows":-1}}`},
		{`{"cells":["a",1]}`, `{"end":{}}`},
		{`{"cells":["a",1],"end":{"rows":0}}`},
		{`{}`, end},
		{``, end},
		{`[]`, end},
	} {
		if got, err := read(response(t, lines...)); !errors.Is(err, rows.ErrMalformed) {
			t.Errorf("%q: %q, %v", lines, got, err)
		}
	}
	if _, err := read(response(t, `{"cells":["a",1]}`, `{"end":{"rows":2}}`)); !errors.Is(err, rows.ErrIncomplete) {
		t.Errorf("a row too few: %v", err)
	}
	for _, head := range []string{"{}\n", "x\n", `{"kind":"RowList"}` + "\n", `{"kind":"PodList","metadata":{"resourceVersion":"1"},"columns":[{}]}` + "\n"} {
		if _, err := read(head); !errors.Is(err, rows.ErrMalformed) {
			t.Errorf("%q: %v", head, err)
		}
	}
}

func TestParseChosen(t *testing.T) {
	const text = `phase=.status.phase,n:int=.spec['a,b'].n,env=memberLabel:env,x:list=.spec.containers[*].image`
	got, err := rows.ParseChosen(text)
	want := []rows.Chosen{
		{"phase", rows.String, ".status.phase"}, {"n", rows.Int, ".spec['a,b'].n"}, {"env", rows.String, "memberLabel:env"}, {"x", rows.List, ".spec.containers[*].image"},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	again, err := rows.ParseChosen(rows.FormatChosen(got))
	if err != nil || !slices.Equal(again, want) {
		t.Errorf("%+v, %v", again, err)
	}
	for text, problem := range map[string]string{
		"": "column 1", "x": "column 1", "a=.a,x": "column 2", "a b=.x": "letters", "1=.x": "letters", "name=.x": "every export", "redacted=.x": "every export",
		"x:labels=.x": "none of the types", "x=.a,x=.b": "another column", "x=.a,X=.b": "another column", "Name=.x": "every export", "Redacted=.x": "every export", strings.Repeat("x", 64) + "=.a": "letters",
	} {
		if _, err := rows.ParseChosen(text); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v", text, err)
		}
	}
	var many []string
	for i := range 61 {
		many = append(many, fmt.Sprintf("c%d=.x", i))
	}
	if _, err := rows.ParseChosen(strings.Join(many, ",")); err == nil {
		t.Error("61 columns are taken")
	}
}

// FuzzReader: whatever comes, it ends, and rows are as wide as the header says.
func FuzzReader(f *testing.F) {
	f.Add(response(f, `{"cells":["a",1]}`) + string(rows.AppendEnd(nil, 1)))
	f.Add(response(f, `{"cells":["a",null],"redacted":[0],"invalid":[1]}`, `{"cells":["a"]}`))
	f.Add("{}\n")
	f.Fuzz(func(t *testing.T, text string) {
		in, err := rows.NewReader(strings.NewReader(text))
		if err != nil {
			return
		}
		for range strings.Count(text, "\n") + 1 {
			row, err := in.Next()
			if err != nil {
				if _, again := in.Next(); errors.Is(err, io.EOF) && !errors.Is(again, io.EOF) {
					t.Errorf("%v after the end", again)
				}
				return
			}
			if len(row.Cells) != len(in.Header().Columns) {
				t.Fatalf("%d cells of %d columns", len(row.Cells), len(in.Header().Columns))
			}
		}
		t.Error("there are more rows than lines")
	})
}
