package clients

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
)

// document is the table as it is read.
const document = "../../docs/clients.md"

// short is how many of the rows of commands are played, one in so many, where the
// environment's CLIENTS does not ask for all: each of them starts half a dozen processes.
const short = 3

// TestClients shows what clients get, beside what a real API server answers, and that
// docs/clients.md says so.
func TestClients(t *testing.T) {
	r := newRig(t)
	places := []place{fleet, flat, members}
	if !r.serves(t, flat) {
		places = []place{fleet, members}
	}
	all := rows()
	t.Run("rows", func(t *testing.T) {
		for i, w := range all {
			if os.Getenv("CLIENTS") == "" && w.command && i%short != 0 {
				continue
			}
			t.Run(w.group+"/"+w.act, func(t *testing.T) {
				if !w.alone {
					t.Parallel()
				}
				r.play(t, w, places)
			})
		}
	})
	if r.fed != nil {
		t.Run("server ends", r.end)
	}
	text := markdown(all, slices.Contains(places, flat))
	switch os.Getenv("CLIENTS") {
	case "print":
		fmt.Print(text)
	case "write":
		must(t, os.WriteFile(document, []byte(text), 0o644))
	}
	old, err := os.ReadFile(document)
	if err != nil || string(old) != text {
		t.Errorf("docs/clients.md is not what clients get; `make clients CLIENTS=write` writes it again (%v)", err)
	}
}

// play does what a row does at all places, and checks what came of it.
func (r *rig) play(t *testing.T, w *row, places []place) {
	truth := map[string]answer{}
	for _, site := range sites {
		if site != home && !slices.ContainsFunc(places, func(p place) bool { return w.at(p).lines == allLines }) {
			continue
		}
		truth[site] = r.ask(t, w, real, site)
	}
	if got := truth[home].text; got != w.real {
		t.Errorf("real API server:\ngot  %s\nwant %s", got, w.real)
	}
	for _, p := range places {
		site := ""
		if p == members {
			site = home
		}
		if err := w.check(p, r.ask(t, w, p, site), truth); err != nil {
			t.Errorf("/%s:\n%v", p, err)
		}
	}
}

// ask does what a row does at a target.
func (r *rig) ask(t *testing.T, w *row, at place, site string) answer {
	t.Helper()
	user := w.user
	if user == "" {
		user = administrator
	}
	target, err := r.target(at, site, user)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	a, err := w.do(ctx, target)
	if err != nil {
		t.Fatalf("/%s: %v", at, err)
	}
	return a
}

// serves reports whether federator serves a place.
func (r *rig) serves(t *testing.T, at place) bool {
	target, err := r.target(at, "", administrator)
	must(t, err)
	resp, err := target.client(t).Get(target.config.Host + "/api")
	must(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	must(t, err)
	return resp.StatusCode == http.StatusOK
}

// markdown returns the table of rows; what has not been requested of /flat is omitted.
func markdown(all []*row, flat bool) string {
	var b strings.Builder
	b.WriteString(preface)
	group := ""
	for _, w := range all {
		if w.group != group {
			group = w.group
			fmt.Fprintf(&b, "\n## %s\n\n| client | real API server | /fleet | /flat | /members | where it differs |\n| --- | --- | --- | --- | --- | --- |\n", group)
		}
		if !flat {
			w.flat = says("not served")
		}
		cells := []string{w.act, w.real, w.fleet.cell(), w.flat.cell(), w.members.cell(), w.reason()}
		for i, c := range cells {
			cells[i] = strings.ReplaceAll(strings.ReplaceAll(c, "|", "\\|"), "\n", "<br>")
		}
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}
