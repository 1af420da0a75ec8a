package export

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"k8s.io/client-go/rest"

	"federator.dev/federator/internal/cli/queryclient"
	"federator.dev/federator/internal/rows"
)

// TestPages_AreOfOneCaller: whose grants change between two pages has not all, or more, of what the first page says that there is.
func TestPages_AreOfOneCaller(t *testing.T) {
	two := []string{"fleet/a", "fleet/b"}
	left := func(n int64) *int64 { return &n }
	stale := func(age string) []rows.NotSynced {
		return []rows.NotSynced{{Member: "fleet/b", Kind: "Pod", State: "Stale", Age: age}}
	}
	for name, test := range map[string]struct {
		first, second rows.Header
		fails         bool
	}{
		"as it was":                 {rows.Header{Members: two, NotSynced: stale("1s")}, rows.Header{Members: two, NotSynced: stale("2s")}, false},
		"a member is not readable":  {rows.Header{Members: two}, rows.Header{Members: two[:1]}, true},
		"a member is readable":      {rows.Header{Members: two[:1]}, rows.Header{Members: two}, true},
		"a member is not synced":    {rows.Header{Members: two}, rows.Header{Members: two, NotSynced: stale("")}, true},
		"one is left":               {rows.Header{Metadata: rows.Metadata{RemainingItemCount: left(1)}}, rows.Header{}, false},
		"one of two was left":       {rows.Header{Metadata: rows.Metadata{RemainingItemCount: left(2)}}, rows.Header{}, true},
		"there are more than left":  {rows.Header{Metadata: rows.Metadata{RemainingItemCount: left(0)}}, rows.Header{}, true},
		"another revision":          {rows.Header{}, rows.Header{Metadata: rows.Metadata{ResourceVersion: "8"}}, true},
		"a column has another type": {rows.Header{}, rows.Header{Columns: []rows.Column{{Name: "member", Type: rows.JSON}}}, true},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			h := test.first
			if r.URL.Query().Get("continue") == "" {
				h.Metadata.Continue = "more"
			} else {
				h = test.second
			}
			if h.Metadata.ResourceVersion == "" {
				h.Metadata.ResourceVersion = "7"
			}
			if h.Columns == nil {
				h.Columns = rows.Fixed[:1]
			}
			text, err := rows.AppendHeader(nil, &h)
			if err == nil {
				_, err = w.Write(rows.AppendEnd(append(text, `{"cells":["fleet/a"]}`+"\n"...), 1))
			}
			if err != nil {
				t.Error(err)
			}
		}))
		client, err := queryclient.New(&rest.Config{Host: server.URL}, "test")
		if err != nil {
			t.Fatal(err)
		}
		p := &pages{client: client, name: "pods", path: "/fleet/api/v1/pods", query: url.Values{}}
		n, err := drain(t, p)
		if (err != nil) != test.fails || err == nil && n != 2 {
			t.Errorf("%s: %d rows, %v", name, n, err)
		}
		server.Close()
	}
}

// drain reads all pages.
func drain(t *testing.T, p *pages) (n int, err error) {
	t.Helper()
	if err := p.open(t.Context()); err != nil {
		return 0, err
	}
	p.first = *p.reader.Header()
	for {
		switch _, err := p.Next(t.Context()); {
		case errors.Is(err, io.EOF):
			return n, p.Close()
		case err != nil:
			return n, errors.Join(err, p.Close())
		}
		n++
	}
}
