package shards

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"federator.dev/federator/pkg/policyquery"
)

// truth is what the members' own servers have: uid and resourceVersion of each ConfigMap.
func (f *fleet) truth() map[string]string {
	f.t.Helper()
	out := map[string]string{}
	for i, m := range f.kube.Members {
		if f.left[i] {
			continue
		}
		list, err := m.Client().CoreV1().ConfigMaps("").List(f.t.Context(), metav1.ListOptions{})
		f.do(err)
		for _, cm := range list.Items {
			out[memberName(i)+"/"+cm.Namespace+"/"+cm.Name] = string(cm.UID) + "@" + cm.ResourceVersion
		}
	}
	return out
}

// answer is what a process answers of the same, and the members that it says are not fresh.
func (s *shard) answer(ctx context.Context) (objects map[string]string, old map[string]bool, err error) {
	client, err := kubernetes.NewForConfig(s.config("/fleet"))
	if err != nil {
		return nil, nil, err
	}
	text, err := client.CoreV1().RESTClient().Get().Resource("configmaps").DoRaw(ctx)
	if err != nil {
		return nil, nil, err
	}
	var list struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Items []metav1.PartialObjectMetadata `json:"items"`
	}
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, nil, err
	}
	objects, old = map[string]string{}, map[string]bool{}
	for _, cm := range list.Items {
		a := cm.Annotations
		objects[a["federator.dev/member"]+"/"+cm.Namespace+"/"+cm.Name] = string(cm.UID) + "@" + a["federator.dev/resource-version"]
	}
	if text, some := list.Metadata.Annotations["federator.dev/freshness"]; some {
		var scopes []struct {
			Member string `json:"member"`
		}
		if err := json.Unmarshal([]byte(text), &scopes); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", text, err)
		}
		for _, m := range scopes {
			old[m.Member] = true
		}
	}
	return objects, old, nil
}

// sample is an answer of a process.
type sample struct {
	of    *shard
	asked time.Time
	err   error
	whole bool            // it has all objects that never change
	old   map[string]bool // members that it says are not fresh
}

// probe asks all processes again and again, until stop: what never changes must be in each answer, unless the
// answer says that its member is not fresh. It returns the answers, and what was none.
func (f *fleet) probe(ctx context.Context, never map[string]string) (stop func() []sample) {
	ctx, cancel := context.WithCancel(ctx)
	var asking sync.WaitGroup
	var mu sync.Mutex
	var all []sample
	for _, s := range f.processes {
		asking.Go(func() {
			last, began := "", time.Now()
			for ctx.Err() == nil {
				asked := time.Now()
				objects, old, err := s.answer(ctx)
				if ctx.Err() != nil {
					return
				}
				if state := fmt.Sprint("error ", err != nil, ", not fresh ", old); state != last {
					f.t.Logf("%s after %s: %s", s.name, time.Since(began).Round(100*time.Millisecond), state)
					last = state
				}
				whole := err == nil
				for key, want := range never {
					if err != nil || objects[key] == want {
						continue
					}
					whole = false
					if parts := strings.SplitN(key, "/", 3); !old[parts[0]+"/"+parts[1]] {
						f.t.Errorf("%s answers without %s, and says nothing of it: not fresh are %v", s.name, key, old)
					}
				}
				mu.Lock()
				all = append(all, sample{s, asked, err, whole, old})
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(200 * time.Millisecond):
				}
			}
		})
	}
	return func() []sample {
		cancel()
		asking.Wait()
		return all
	}
}

// exact waits until all processes answer with what the members have.
func (f *fleet) exact(what string) {
	f.t.Helper()
	for _, s := range f.alive() {
		f.until(what+": "+s.name+" answers for all members", func() error {
			want := f.truth()
			got, _, err := s.answer(f.t.Context())
			if err != nil {
				return err
			}
			return differ(want, got)
		})
	}
}

func differ(want, got map[string]string) error {
	var list []string
	for k, v := range want {
		if got[k] != v {
			list = append(list, fmt.Sprintf("%s: %q, want %q", k, got[k], v))
		}
	}
	for k, v := range got {
		if _, ok := want[k]; !ok {
			list = append(list, fmt.Sprintf("%s: %q, want none", k, v))
		}
	}
	if len(list) == 0 {
		return nil
	}
	slices.Sort(list)
	return fmt.Errorf("%d differ: %s", len(list), strings.Join(list[:min(3, len(list))], "; "))
}

// list is what a process answers of violations.
func (s *shard) list(ctx context.Context) (list policyquery.ViolationList, err error) {
	if err := s.ask(ctx, "violations", map[string]string{"policy": "once"}, &list); err != nil {
		return list, err
	}
	if !list.Synced {
		return list, errors.New("not synced")
	}
	return list, nil
}

// violations are what a process answers: by object, the messages, and whether they are known.
func (s *shard) violations(ctx context.Context) (map[string][]string, error) {
	list, err := s.list(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string][]string{}
	for _, item := range list.Items {
		key := fmt.Sprintf("%s %s/%s", item.Subject.Member, item.Subject.Namespace, item.Subject.Name)
		for _, v := range item.Violations {
			out[key] = append(out[key], fmt.Sprint(item.State, ": ", v.Msg))
		}
		slices.Sort(out[key])
	}
	return out, nil
}

// wanted are the violations that follow from what the members have.
func (f *fleet) wanted() map[string][]string {
	f.t.Helper()
	type at struct{ member, namespace string }
	has := map[string][]at{}
	for i, m := range f.kube.Members {
		if f.left[i] {
			continue
		}
		list, err := m.Client().CoreV1().ConfigMaps("").List(f.t.Context(), metav1.ListOptions{})
		f.do(err)
		for _, cm := range list.Items {
			if strings.HasPrefix(cm.Name, "once-") {
				has[cm.Name] = append(has[cm.Name], at{memberName(i), cm.Namespace})
			}
		}
	}
	out := map[string][]string{}
	for name, all := range has {
		for _, of := range all {
			key := fmt.Sprintf("%s %s/%s", of.member, of.namespace, name)
			for _, other := range all {
				if text := "Known: " + other.member + f.says; other.member != of.member && !slices.Contains(out[key], text) {
					out[key] = append(out[key], text)
				}
			}
			slices.Sort(out[key])
		}
	}
	for key, list := range out {
		if len(list) == 0 {
			delete(out, key)
		}
	}
	return out
}

// judged waits until the processes together know the right violations, each of the objects that it judges.
func (f *fleet) judged(what string) {
	f.t.Helper()
	f.until(what+": the violations are known", func() error {
		want := f.wanted()
		got := map[string][]string{}
		for _, s := range f.alive() {
			own, err := s.violations(f.t.Context())
			if err != nil {
				return fmt.Errorf("%s: %w", s.name, err)
			}
			maps.Copy(got, own)
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("violations are\n%v, want\n%v", got, want)
		}
		return nil
	})
}
