package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// listed is what is looked at of a ConfigMap.
type listed struct {
	Metadata struct {
		Name        string            `json:"name"`
		UID         string            `json:"uid"`
		Labels      map[string]string `json:"labels"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
}

// reader lists through federator all the time, whole and in pages, and judges each answer by what
// holds at every moment of each member: all anchors are there; of a pair there is one of two
// states; what says that it is of a member is of that member. An answer that says of a member that it
// is not synced may be without it, which is counted, but not have some of it.
type reader struct {
	done sync.WaitGroup

	mu       sync.Mutex
	answers  int
	partial  int // answers that lacked a member's objects, and said that it is not synced
	refused  int
	silence  time.Duration // the longest time between two answers
	last     time.Time
	problems []string
}

// reset forgets what was seen.
func (r *reader) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers, r.partial, r.refused, r.silence, r.problems = 0, 0, 0, 0, nil
	r.last = time.Now()
}

// seen says what was seen since reset.
func (r *reader) seen() (text string, problems []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	silence := max(r.silence, time.Since(r.last))
	text = fmt.Sprintf("%d whole, %d refused, silent for %s", r.answers, r.refused, round(silence))
	if r.partial > 0 {
		text += fmt.Sprintf(", %d that lacked a member and said so", r.partial)
	}
	return text, r.problems
}

// observe starts the readers; they end with ctx.
func (r *rig) observe(ctx context.Context) {
	r.reader = &reader{last: time.Now()}
	r.reader.done.Go(func() { r.read(ctx) })
	for _, m := range r.members {
		w := &watcher{uids: map[string]string{}}
		r.watchers = append(r.watchers, w)
		config := r.queryConfig()
		config.Host += "/members/" + m.name
		client, err := dynamic.NewForConfig(config)
		r.do(err)
		w.informer = dynamicinformer.NewFilteredDynamicInformer(client, schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "default", 0, cache.Indexers{}, nil).Informer()
		_, err = w.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: w.deleted})
		r.do(err)
		w.done.Go(func() { w.informer.RunWithContext(ctx) })
	}
}

const readEvery = 40 * time.Millisecond

func (r *rig) read(ctx context.Context) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		paths := []string{"/fleet", "/fleet", "/members/" + r.members[0].name, "/members/" + r.members[1].name}
		limit := []int{0, 30, 0, 50}[n%4]
		items, notSynced, err := r.list(ctx, "https://"+r.query+paths[n%4]+configMaps, limit)
		if ctx.Err() != nil {
			return
		}
		expected := r.members
		if n%4 >= 2 {
			expected = r.members[n%4-2 : n%4-1]
		}
		r.reader.judge(expected, items, notSynced, err)
	}
}

// list returns all of a list, which is of one moment, in pages where there is a limit, and what it
// says of members that are not synced.
func (r *rig) list(ctx context.Context, at string, limit int) (all []listed, notSynced string, err error) {
	q := url.Values{}
	if limit > 0 {
		q.Set("limit", fmt.Sprint(limit))
	}
	for {
		body, err := get(ctx, r.client, at+"?"+q.Encode())
		if err != nil {
			return nil, "", err
		}
		var page struct {
			Metadata struct {
				Continue    string            `json:"continue"`
				Annotations map[string]string `json:"annotations"`
			} `json:"metadata"`
			Items []listed `json:"items"`
		}
		if err := json.Unmarshal(body, &page); err != nil {
			return nil, "", err
		}
		all = append(all, page.Items...)
		notSynced += page.Metadata.Annotations["federator.dev/freshness"]
		if page.Metadata.Continue == "" {
			return all, notSynced, nil
		}
		q.Set("continue", page.Metadata.Continue)
	}
}

// judge looks at an answer.
func (r *reader) judge(expected []*member, items []listed, notSynced string, err error) {
	var problems []string
	partial := false
	if err == nil {
		partial, problems = judge(expected, items, notSynced)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		r.refused++
		return
	}
	now := time.Now()
	r.silence = max(r.silence, now.Sub(r.last))
	r.last = now
	if partial {
		r.partial++
	} else {
		r.answers++
	}
	if len(r.problems) < 20 {
		r.problems = append(r.problems, problems...)
	}
}

// judge returns what is wrong with an answer of some members, and whether it is without one.
func judge(expected []*member, items []listed, notSynced string) (partial bool, problems []string) {
	found := map[string]int{}
	pairs := map[string]listed{}
	uids := map[string]string{}
	for _, o := range items {
		of, name := o.Metadata.Annotations["federator.dev/member"], o.Metadata.Name
		if other, twice := uids[o.Metadata.UID]; twice {
			problems = append(problems, fmt.Sprintf("mixed: %s of %s is also %s", name, of, other))
		}
		uids[o.Metadata.UID] = name
		if says := o.Metadata.Labels["of"]; says != "" && "fleet/"+says != of {
			problems = append(problems, fmt.Sprintf("mixed: %s of %s says that it is of %s", name, of, says))
		}
		if strings.HasPrefix(name, "anchor-") {
			found[of]++
		}
		if strings.HasPrefix(name, "pair-") {
			pairs[of+" "+name] = o
		}
	}
	for _, m := range expected {
		if found[m.name] == 0 && strings.Contains(notSynced, m.name) {
			partial = true
			continue
		}
		if found[m.name] != anchors {
			problems = append(problems, fmt.Sprintf("empty: %d of %d objects of %s that nobody deletes, among %d", found[m.name], anchors, m.name, len(items)))
		}
		a, b := pairs[m.name+" pair-a"].Metadata.Labels, pairs[m.name+" pair-b"].Metadata.Labels
		if a["n"] != b["n"] && a["before"] != b["n"] {
			problems = append(problems, fmt.Sprintf("mixed: %s has a pair of %v and %v", m.name, a, b))
		}
	}
	return partial, problems
}

// watcher is a stock informer of one member that lives as long as the rig.
type watcher struct {
	informer cache.SharedIndexInformer
	done     sync.WaitGroup

	mu       sync.Mutex
	uids     map[string]string
	problems []string
}

// deleted notices that what nobody deletes seems to be.
func (w *watcher) deleted(obj any) {
	if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	o, ok := obj.(*unstructured.Unstructured)
	if !ok || !strings.HasPrefix(o.GetName(), "anchor-") {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf("a watch says that %s is deleted", o.GetName()))
}

// take returns the problems since it was called last.
func (w *watcher) take() (problems []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	problems, w.problems = w.problems, nil
	return problems
}

// equal compares what the informers have with what the members have.
func (r *rig) equal(ctx context.Context) error {
	var errs []error
	for i, m := range r.members {
		body, err := get(ctx, m.direct, m.host+configMaps)
		if err != nil {
			return err
		}
		want, err := objectsOf(body, "ConfigMap")
		if err != nil {
			return err
		}
		items := r.watchers[i].informer.GetStore().List()
		raw, err := json.Marshal(map[string]any{"items": items})
		if err != nil {
			return err
		}
		got, err := objectsOf(raw, "ConfigMap")
		if err != nil {
			return err
		}
		for key, text := range want {
			if got[key] != text {
				errs = append(errs, fmt.Errorf("an informer has of %s %.300s, want %.300s", m.name, got[key], text))
			}
		}
		if len(got) != len(want) {
			errs = append(errs, fmt.Errorf("an informer has %d objects of %s, want %d", len(got), m.name, len(want)))
		}
	}
	return errors.Join(errs...)
}
