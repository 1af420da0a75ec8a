package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
)

// lasting is a policy of which something must outlast processes, with what people do to it and
// what is checked.
type lasting interface {
	step()          // people look at it, and do the next thing; after each kill, and while it is enforced
	settled() error // nil once nothing is under way
	judge()         // compares all that has happened with what may
}

func (r *harness) stepLasting() {
	r.Helper()
	for _, l := range r.lasting {
		l.step()
	}
}

// settleLasting ends what is under way.
func (r *harness) settleLasting() (err error) {
	r.Helper()
	r.ending = true
	r.stepLasting()
	for _, l := range r.lasting {
		err = errors.Join(err, l.settled())
	}
	return err
}

func (r *harness) judgeLasting() {
	r.Helper()
	for _, l := range r.lasting {
		l.judge()
	}
}

// wish tells all processes what people want.
func (r *harness) wish(change func(*wishes)) {
	r.Helper()
	change(&r.wishes)
	text, err := json.Marshal(r.wishes)
	if err != nil {
		r.Fatal(err)
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: wishesName}, Data: map[string]string{wishesName: string(text)}}
	maps := r.hub.Client().CoreV1().ConfigMaps(namespace)
	if _, err = maps.Update(r.Context(), m, metav1.UpdateOptions{}); apierrors.IsNotFound(err) {
		_, err = maps.Create(r.Context(), m, metav1.CreateOptions{})
	}
	if err != nil {
		r.Fatal(err)
	}
}

// state is what the hub remembers of a policy; nothing before it has any.
func (r *harness) state(policy string) v1alpha1.PolicyStateStatus {
	r.Helper()
	var s v1alpha1.PolicyState
	if err := r.get(&s, "policystates", policy); err != nil && !apierrors.IsNotFound(err) {
		r.Fatal(err)
	}
	return s.Status
}

// get reads an object of the hub.
func (r *harness) get(into any, resource, name string) error {
	body, err := r.hub.Client().CoreV1().RESTClient().Get().AbsPath("/apis/federator.dev/v1alpha1", resource, name).Do(context.WithoutCancel(r.Context())).Raw()
	if err == nil {
		err = json.Unmarshal(body, into)
	}
	return err
}

// violate creates objects of a policy in a member that violate it.
func (r *harness) violate(of *kube.ControlPlane, policy string, names ...string) {
	r.Helper()
	for _, name := range names {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"state": "bad"}}
		if _, err := of.Client().CoreV1().ConfigMaps(policy).Create(r.Context(), m, metav1.CreateOptions{}); err != nil {
			r.Fatal(err)
		}
	}
}

// wrong returns the objects of a policy in a member that violate it, and how many do not.
func (r *harness) wrong(of *kube.ControlPlane, policy string) (names []string, good int) {
	r.Helper()
	list, err := of.Client().CoreV1().ConfigMaps(policy).List(r.Context(), metav1.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	for i := range list.Items {
		switch m := &list.Items[i]; m.Data["state"] {
		case "bad":
			names = append(names, m.Name)
		case "good":
			good++
		}
	}
	return names, good
}

// request is a process's request to write, whether it was answered or not.
type request struct {
	target              string
	received, completed time.Time
}

// requests returns those for a policy that a member's API server has received, in the order in
// which it has answered them.
func (r *harness) requests(of *kube.ControlPlane, policy string) (out []request) {
	r.Helper()
	events, err := of.Audit()
	if err != nil {
		r.Fatal(err)
	}
	for i := range events {
		e := &events[i]
		if e.ObjectRef.Resource != "configmaps" || e.ObjectRef.Namespace != policy || strings.Contains(e.RequestURI, "dryRun=") || !strings.Contains(e.RequestURI, "fieldManager=federator") {
			continue
		}
		uri, _, _ := strings.Cut(e.RequestURI, "?")
		out = append(out, request{path.Base(uri), e.Received, e.Completed})
	}
	return out
}

// stateChange is a version of what the hub remembers of a policy.
type stateChange struct {
	v1alpha1.PolicyStateStatus

	received, completed time.Time
}

// stateChanges returns the versions of what the hub has remembered of a policy, in their order.
func (r *harness) stateChanges(policy string) (out []stateChange) {
	r.Helper()
	events, err := r.hub.Audit()
	if err != nil {
		r.Fatal(err)
	}
	for i := range events {
		e := &events[i]
		var s v1alpha1.PolicyState
		if e.ObjectRef.Resource != "policystates" || e.ResponseStatus.Code >= 300 || json.Unmarshal(e.ResponseObject, &s) != nil || s.Name != policy {
			continue
		}
		out = append(out, stateChange{s.Status, e.Received, e.Completed})
	}
	return out
}

// under is an error while objects of a policy violate it.
func (r *harness) under(policy string) error {
	for _, m := range r.members {
		if names, _ := r.wrong(m, policy); len(names) > 0 {
			return fmt.Errorf("policy %s: %d objects violate it: %v", policy, len(names), names)
		}
	}
	return nil
}
