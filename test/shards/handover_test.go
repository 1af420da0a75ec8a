package shards

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// listSeries are the series of an API server that count lists, be they requests or the beginning of a watch.
var listSeries = regexp.MustCompile(`^(apiserver_request_total\{.*|apiserver_watch_list_duration_seconds_count\{.*)\} ([0-9.e+]+)$`)

// lists are the lists of ConfigMaps and Namespaces that each member has answered.
func (f *fleet) lists() (out map[string]float64) {
	f.t.Helper()
	out = map[string]float64{}
	for i, m := range f.kube.Members {
		text, err := m.Client().CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(f.t.Context())
		f.do(err)
		lines := bufio.NewScanner(bytes.NewReader(text))
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			is := listSeries.FindStringSubmatch(lines.Text())
			if is == nil || !strings.Contains(is[1], `resource="configmaps"`) && !strings.Contains(is[1], `resource="namespaces"`) {
				continue
			}
			if strings.HasPrefix(is[1], "apiserver_request_total") && !strings.Contains(is[1], `verb="LIST"`) {
				continue
			}
			var n float64
			_, err := fmt.Sscan(is[2], &n)
			f.do(err)
			out[memberName(i)] += n
		}
		f.do(lines.Err())
	}
	return out
}

// judges are the members that a process judges, by the map: none before there is one.
func (f *fleet) judges(s *shard) (out []string) {
	f.t.Helper()
	held, err := f.held()
	if apierrors.IsNotFound(err) {
		return nil
	}
	f.do(err)
	for _, m := range held.Members {
		if m.Judge > 0 && held.Processes[m.Judge-1].ID == s.name {
			out = append(out, m.Name)
		}
	}
	return out
}

// follower is a process that judges some members and does not lead. The first to begin may have all of them until they are shared.
func (f *fleet) follower() (follower *shard) {
	f.t.Helper()
	f.until("another process than the leader judges members", func() error {
		leader := f.leader()
		for _, s := range f.alive() {
			if s != leader && len(f.judges(s)) > 0 {
				follower = s
				return nil
			}
		}
		return errors.New("the leader judges all members")
	})
	return follower
}

// fresh waits until these processes answer for all members, all of which are fresh, without asking a member.
func (f *fleet) fresh(what string, want map[string]string, of []*shard) {
	f.t.Helper()
	for _, s := range of {
		f.until(what+": "+s.name+" answers for all members", func() error {
			got, old, err := s.answer(f.t.Context())
			if err == nil && len(old) > 0 {
				err = fmt.Errorf("not fresh are %v", old)
			}
			if err != nil {
				return err
			}
			return differ(want, got)
		})
	}
}

// handovers returns how many members processes have asked others for, by result, as they log it.
func (f *fleet) handovers(of []*shard) map[string]float64 {
	f.t.Helper()
	line := regexp.MustCompile(`msg="another process was asked for what it holds of a member".* result=(\w+)`)
	out := map[string]float64{}
	for _, s := range of {
		text, err := s.Log()
		f.do(err)
		for _, is := range line.FindAllSubmatch(text, -1) {
			out[string(is[1])]++
		}
	}
	return out
}

// without are the processes that run, but for one.
func (f *fleet) without(s *shard) []*shard {
	return slices.DeleteFunc(f.alive(), func(o *shard) bool { return o == s })
}

// TestShards_HandOver: a process that ends in order costs the members that it judged no list; one that is killed does. Both are
// printed. A process that is killed and comes back at once goes on from its own disk.
func TestShards_HandOver(t *testing.T) {
	f := newFleet(t, setup{replication: 1, persist: true, unaudited: true})
	for i := range f.kube.Members {
		for n := range 100 {
			f.put(i, fmt.Sprint("fix-", n)) // what tests put is deleted by its prefix
		}
		f.put(i, "once-before") // which rests on what others judge
	}
	for _, s := range f.processes {
		s.start()
	}
	f.exact("at the start")
	f.judged("at the start")

	drained := f.follower()
	moved, want, since := f.judges(drained), f.truth(), f.firstSeen(drained)
	others := f.without(drained)
	before, began := f.lists(), time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- drained.Stop(patience) }()
	f.until("others judge the members of "+drained.name, func() error {
		if left := f.judges(drained); len(left) > 0 {
			return fmt.Errorf("it judges %v", left)
		}
		return nil
	})
	f.fresh("after "+drained.name+" has ended", want, others)
	took := time.Since(began)
	if after := f.lists(); !maps.Equal(before, after) {
		t.Errorf("%s has ended in order: members answered %v lists before, and %v after", drained.name, before, after)
	}
	f.do(<-stopped)
	got := f.handovers(others)
	t.Logf("%s has ended in order: %v of %d objects were judged by others after %s, without a list; handovers: %v", drained.name, moved, len(want), took.Round(time.Millisecond), got)
	if got["taken"] < float64(len(moved)) {
		t.Errorf("%d members have moved, and handovers were %v", len(moved), got)
	}
	f.judged("after it has ended")
	f.same("after it has ended", since)
	for i := range f.kube.Members {
		f.put(i, "once-after")
	}
	f.exact("after changes")
	f.judged("after changes")

	drained.start()
	f.exact("after it is back")
	f.judged("after it is back")
	since = f.firstSeen(f.leader())
	f.restartAtOnce(f.follower())
	f.judged("after a restart")
	f.same("after a restart", since)
	f.lost(f.follower())
}

// firstSeen are the times at which violations were first seen, by object and message.
func (f *fleet) firstSeen(s *shard) map[string]time.Time {
	f.t.Helper()
	list, err := s.list(f.t.Context())
	f.do(err)
	out := map[string]time.Time{}
	for _, item := range list.Items {
		for _, v := range item.Violations {
			out[fmt.Sprint(item.Subject, ": ", v.Msg)] = v.FirstSeen
		}
	}
	return out
}

// same checks that violations were first seen when they were.
func (f *fleet) same(what string, since map[string]time.Time) {
	f.t.Helper()
	if len(since) == 0 {
		f.t.Fatalf("%s: there were no violations", what)
	}
	now := f.firstSeen(f.leader())
	for key, at := range since {
		if !now[key].Equal(at) {
			f.t.Errorf("%s: %s since %s, was since %s", what, key, now[key], at)
		}
	}
}

// restartAtOnce kills a process, which is back before its Lease has expired.
func (f *fleet) restartAtOnce(s *shard) {
	f.t.Helper()
	want, judged := f.truth(), f.judges(s)
	before, began := f.lists(), time.Now()
	s.Kill()
	s.start()
	f.until(s.name+" answers again", func() error {
		_, old, err := s.answer(f.t.Context())
		if err == nil && len(old) > 0 {
			err = errors.New("not all is fresh")
		}
		return err
	})
	f.fresh("after "+s.name+" was restarted", want, f.alive())
	f.t.Logf("%s, which judges %v, was killed and is back after %s", s.name, judged, time.Since(began).Round(time.Millisecond))
	if after := f.lists(); !maps.Equal(before, after) {
		f.t.Errorf("%s was restarted: members answered %v lists before, and %v after", s.name, before, after)
	}
}

// lost kills a process: what it judged is listed by others.
func (f *fleet) lost(s *shard) {
	f.t.Helper()
	want, moved, others := f.truth(), f.judges(s), f.without(s)
	before, began := f.lists(), time.Now()
	s.Kill()
	f.until("others judge the members of "+s.name, func() error {
		if left := f.judges(s); len(left) > 0 {
			return fmt.Errorf("it judges %v", left)
		}
		return nil
	})
	certain := time.Since(began)
	f.fresh("after "+s.name+" was killed", want, others)
	took, after := time.Since(began), f.lists()
	f.t.Logf("%s was killed: that was certain after %s, and %v were judged by others after %s; lists before %v, after %v", s.name,
		certain.Round(time.Millisecond), moved, took.Round(time.Millisecond), before, after)
	if maps.Equal(before, after) {
		f.t.Errorf("the members of %s were not listed: lists are not counted", s.name)
	}
}
