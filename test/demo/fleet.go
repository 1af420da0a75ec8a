package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
)

// root is the directory of this module, which has the chart.
func (d *demo) root(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "federator.dev/federator").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// member returns a cluster by its name on the hub.
func (d *demo) member(name string) *kube.ControlPlane {
	for i, m := range members {
		if m.Name == name {
			return d.fleet.Members[i]
		}
	}
	panic("there is no member " + name)
}

// running is an error unless all apps of a member run.
func running(ctx context.Context, c *kube.ControlPlane) error {
	apps, err := c.Client().AppsV1().Deployments("shop").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, a := range apps.Items {
		if a.Status.ReadyReplicas != *a.Spec.Replicas {
			err = errors.Join(err, fmt.Errorf("%s has %d of %d replicas", a.Name, a.Status.ReadyReplicas, *a.Spec.Replicas))
		}
	}
	return err
}

// replicas is an error unless an app is to have so many.
func (d *demo) replicas(ctx context.Context, member, app string, n int32) error {
	got, err := d.member(member).Client().AppsV1().Deployments("shop").Get(ctx, app, metav1.GetOptions{})
	if err == nil && *got.Spec.Replicas != n {
		err = fmt.Errorf("%s of %s has %d replicas, not %d", app, member, *got.Spec.Replicas, n)
	}
	return err
}

// all is an error unless all critical apps, but web, which has three anyway, are to
// have so many replicas.
func (d *demo) all(ctx context.Context, n int32) error {
	for _, m := range members {
		for _, a := range []string{"cart", "search", "payments"} {
			if err := d.replicas(ctx, m.Name, a, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// seen waits for a Deployment's change to so many replicas.
func seen(w watch.Interface, n int32) (time.Time, error) {
	for e := range w.ResultChan() {
		if app, ok := e.Object.(*appsv1.Deployment); ok && *app.Spec.Replicas == n {
			return time.Now(), nil
		}
	}
	return time.Time{}, fmt.Errorf("it has not had %d replicas within %v", n, patience)
}

func since(t time.Time) time.Duration { return time.Since(t).Round(10 * time.Millisecond) }

// change replaces the only place of some text in a file of the repository.
type change struct{ file, from, to string }

// push commits changes, shows the commit, and has federator fetch it at once.
func (d *demo) push(ctx context.Context, subject string, changes ...change) error {
	for _, c := range changes {
		path := filepath.Join(d.repo.Dir, c.file)
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := strings.Count(string(text), c.from); n != 1 {
			return fmt.Errorf("%s has %q %d times", c.file, c.from, n)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), c.from, c.to, 1)), 0o644); err != nil {
			return err
		}
	}
	if err := d.commit(subject); err != nil {
		return err
	}
	return errors.Join(d.show(ctx, "git -C policies show --oneline -U0"), d.fetch(ctx))
}

// fetch has federator fetch what was committed at once. A webhook or the interval would do,
// too.
func (d *demo) fetch(ctx context.Context) error {
	return d.show(ctx, "kubectl annotate --overwrite policysource platform federator.dev/sync=$(git -C policies rev-parse HEAD)")
}

// action returns the name of the last correction of an app.
func (d *demo) action(ctx context.Context, member, app string) (string, error) {
	var list v1alpha1.ActionList
	body, err := d.fleet.Hub.Client().CoreV1().RESTClient().Get().AbsPath("/apis/federator.dev/v1alpha1/actions").Do(ctx).Raw()
	if err == nil {
		err = json.Unmarshal(body, &list)
	}
	if err != nil {
		return "", err
	}
	list.Items = slices.DeleteFunc(list.Items, func(a v1alpha1.Action) bool {
		return a.Spec.Target.Member != "fleet/"+member || a.Spec.Target.Name != app || a.Status.Phase != v1alpha1.PhaseSucceeded
	})
	if len(list.Items) == 0 {
		return "", fmt.Errorf("%s of %s has not been corrected", app, member)
	}
	return slices.MaxFunc(list.Items, func(a, b v1alpha1.Action) int { return a.Status.EndedAt.Compare(b.Status.EndedAt.Time) }).Name, nil
}

// commit commits what is in the work tree.
func (d *demo) commit(subject string) error {
	if _, err := d.repo.Run("add", "--all"); err != nil {
		return err
	}
	_, err := d.repo.Run("commit", "--quiet", "--message="+subject)
	return err
}

// line is where some text is in a file of the repository, from 1.
func (d *demo) line(name, text string) int {
	all, err := os.ReadFile(filepath.Join(d.repo.Dir, name))
	if err != nil {
		return 0
	}
	return slices.IndexFunc(strings.Split(string(all), "\n"), func(l string) bool { return strings.Contains(l, text) }) + 1
}
