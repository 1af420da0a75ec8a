package source

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"federator.dev/federator/internal/trigger"
	"federator.dev/federator/pkg/clusterinformers"
	"federator.dev/federator/pkg/clusterinformers/connection"
)

// hostile answers as a federator that is none.
type hostile struct {
	answer atomic.Pointer[func(w http.ResponseWriter, r *http.Request)]
}

func (h *hostile) ServeHTTP(w http.ResponseWriter, r *http.Request) { (*h.answer.Load())(w, r) }

func (h *hostile) set(f func(w http.ResponseWriter, r *http.Request)) { h.answer.Store(&f) }

func memberItem(name, via string) string {
	return fmt.Sprintf(`{"name":%q,"facts":{"cluster":{},"serves":["Pod"],"via":[%s]}}`, name, via)
}

func memberList(next string, items ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"kind":"MemberList","installation":"region","continue":%q,"items":[%s]}`, next, strings.Join(items, ","))
	}
}

// Whatever it answers, what is believed is bounded, and what is not known is seen not to be.
func TestFederator_Hostile(t *testing.T) {
	h := &hostile{}
	h.set(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusForbidden) })
	server := httptest.NewTLSServer(h)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	ca, token := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "token")
	writeFile(t, ca, pemOf(server.Certificate()))
	writeFile(t, token, []byte("t"))
	src, err := NewFederator(FederatorOptions{Name: "eu", Installation: "global", Server: server.URL, CAFile: ca, TokenFile: token, Logger: slog.New(newLogs(t)), Interval: 5 * time.Millisecond})
	must(t, err)
	src.(*federatorSource).knownFor = time.Millisecond
	v := watchSource(t, src, nil)
	placeholder := func(reason connection.Reason, says string) func(clusterinformers.Spec) bool {
		return func(m clusterinformers.Spec) bool {
			return m.Refused != nil && m.Refused.Reason == reason && strings.Contains(m.Refused.Message, says) && !m.Uninitialized
		}
	}
	v.member("eu/federator", "forbidden", placeholder(connection.UnknownMembers, "Unauthorized"))
	if !v.partial() {
		t.Error("nothing was said, and it counts as all")
	}
	h.set(memberList("", memberItem("fleet/eu-1", ""), memberItem("fleet/ours", `"global"`), memberItem("fleet/ours-too", `"x","global"`)))
	v.await("one member, and none of ours", func(view []clusterinformers.Spec) bool {
		return len(view) == 1 && view[0].Name == "eu/fleet.eu-1" && view[0].ReadOnly && view[0].Upstream.Member == "fleet/eu-1" && slices.Equal(view[0].Upstream.Via, []string{"region"})
	})
	if v.partial() {
		t.Error("these are all")
	}
	for name, odd := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		says   string
	}{
		"a page that never ends":       {memberList("again", memberItem("fleet/eu-1", "")), "not in order"},
		"a page without members":       {memberList("again"), "has no members"},
		"a name that is a path":        {memberList("", memberItem("fleet/eu-1", ""), memberItem("fleet/x/../y", "")), "1 members of the federator have names"},
		"more federators than are let": {memberList("", memberItem("fleet/eu-1", `"a","b","c","d"`), memberItem("fleet/eu-2", "")), "1 members of the federator are behind more than 4"},
		"no JSON":                      {func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }, "ServerError"},
		"a redirect": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://elsewhere.example", http.StatusFound)
		}, "redirect"},
		"without end": {func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprint(w, `{"kind":"MemberList","items":[`)
			for range 20_000 {
				fmt.Fprint(w, `{"name":"`+strings.Repeat("a", 1000)+`"},`)
			}
		}, ""},
		"more members than may be": {func(w http.ResponseWriter, r *http.Request) {
			page, _ := strconv.Atoi(r.URL.Query().Get("continue"))
			var items []string
			for i := range 100 {
				items = append(items, memberItem(fmt.Sprintf("fleet/m%06d", 100*page+i), ""))
			}
			memberList(strconv.Itoa(page+1), items...)(w, r)
		}, "more than 20000"},
	} {
		h.set(odd.answer)
		v.member("eu/federator", name, placeholder(connection.UnknownMembers, odd.says))
		h.set(memberList("", memberItem("fleet/eu-1", "")))
		v.await("it is one again after "+name, func(view []clusterinformers.Spec) bool { return len(view) == 1 && view[0].Refused == nil })
	}
	h.set(memberList(""))
	v.await("none", func(view []clusterinformers.Spec) bool { return len(view) == 0 })
}

// What the hub describes takes no name of a federator's members.
func TestReserving(t *testing.T) {
	own := &setSource{wake: trigger.New()}
	own.view.Members = []clusterinformers.Spec{
		{Name: "eu/fleet.eu-1", Object: &corev1.ObjectReference{}}, {Name: "fleet/eu-1", Object: &corev1.ObjectReference{}},
	}
	v := watchSource(t, Reserving(own, []string{"eu"}, slog.New(newLogs(t))), nil)
	v.await("the other one", func(view []clusterinformers.Spec) bool { return len(view) == 1 && view[0].Name == "fleet/eu-1" })
}
