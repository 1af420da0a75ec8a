package hostile

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/kube"
)

// A habit is what a reader does to others while a member attacks. HOSTILE_HABITS, with
// commas between, are those that are tried.
type habit struct {
	name   string
	weight int
	beside []string // classes of attacks that it goes with
	do     func(r *rig, ctx context.Context, rng *rand.Rand, user string) error
}

var habits = []habit{
	{"none", 20, nil, func(*rig, context.Context, *rand.Rand, string) error { return nil }},
	{"watches", 2, nil, (*rig).holdWatches},
	{"revoked", 3, []string{"quiet"}, (*rig).outlive},
	{"stranger", 1, nil, (*rig).stranger},
	{"yaml", 2, []string{"many-objects"}, (*rig).manyYAML},
	{"rego", 2, []string{"many-objects"}, (*rig).manyRego},
	{"rego-large", 1, []string{"large-objects"}, (*rig).largeRego},
	{"rego-wide", 2, []string{"wide-objects"}, (*rig).wideRego},
	{"selectors", 2, nil, (*rig).manySelectors},
	{"reviews", 2, nil, (*rig).manyReviews},
	{"rules", 1, []string{"many-kinds"}, (*rig).manyRules},
	{"policies", 2, []string{"slow-deployments"}, (*rig).bindWhileBusy},
	{"libraries", 2, nil, (*rig).changeLibrary},
	{"changes", 2, []string{"costly-deployments"}, (*rig).changeHonest},
	{"rejoin", 2, []string{"slow-deployments"}, (*rig).rejoin},
}

// drawHabit draws one of those that are tried.
func drawHabit(rng *rand.Rand) habit {
	chosen := habits
	if names := words("HOSTILE_HABITS"); len(names) > 0 {
		chosen = slices.DeleteFunc(slices.Clone(habits), func(h habit) bool { return !slices.Contains(names, h.name) })
	}
	total := 0
	for _, h := range chosen {
		total += h.weight
	}
	at := rng.IntN(total)
	for _, h := range chosen {
		if at -= h.weight; at < 0 {
			return h
		}
	}
	return habits[0]
}

// grantAll lets a user read everything, and returns what takes it back.
func (r *rig) grantAll(ctx context.Context, user string) (revoke func(context.Context) error, err error) {
	rule := rbacv1.PolicyRule{APIGroups: []string{"members.federator.dev"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch"}}
	rbac, meta := r.hub.Client().RbacV1(), metav1.ObjectMeta{Name: user}
	_, err1 := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
	_, err2 := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta, Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: user},
	}, metav1.CreateOptions{})
	return func(ctx context.Context) error {
		return rbac.ClusterRoleBindings().Delete(ctx, user, metav1.DeleteOptions{})
	}, errors.Join(err1, err2)
}

// may waits for what a user may list to be so.
func (r *rig) may(ctx context.Context, client *http.Client, want int) error {
	return kube.Until(ctx, patience, func() error {
		code, _, err := get(ctx, client, r.host+"/fleet/api/v1/pods?limit=1", "application/json")
		if err == nil && code != want {
			err = fmt.Errorf("pods: %d, want %d", code, want)
		}
		return err
	})
}

// watch opens a watch; what it says goes on until it ends or ctx does.
func (r *rig) watch(ctx context.Context, client *http.Client, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.host+path, nil)
	if err != nil {
		return nil, err
	}
	return client.Do(req)
}

// holdWatches opens as many watches as there may be; another reader gets one all the same.
func (r *rig) holdWatches(ctx context.Context, _ *rand.Rand, user string) error {
	revoke, err := r.grantAll(ctx, user)
	if err != nil {
		return err
	}
	defer func() { _ = revoke(context.WithoutCancel(ctx)) }() // it is for this step alone
	client := r.as(user)
	if err := r.may(ctx, client, http.StatusOK); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var held sync.WaitGroup
	defer held.Wait()
	defer cancel()
	var opened sync.WaitGroup
	for range maxWatches + 20 {
		opened.Add(1)
		held.Go(func() {
			resp, err := r.watch(ctx, client, "/fleet/api/v1/configmaps?watch=1")
			opened.Done()
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body) // until it ends
				resp.Body.Close()
			}
		})
	}
	opened.Wait()
	resp, err := r.watch(ctx, r.admin, "/fleet/api/v1/pods?watch=1")
	if err != nil {
		return &Finding{"share", err}
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &Finding{"share", fmt.Errorf("beside a reader with %d watches another gets %d", maxWatches, resp.StatusCode)}
	}
	return nil
}

// outlive watches with a grant for everything that is then taken back: the watches end,
// or say that all is gone.
func (r *rig) outlive(ctx context.Context, _ *rand.Rand, user string) error {
	for n := range 2 { // kinds that come and go have grants reviewed again, too
		if err := r.outliveOnce(ctx, fmt.Sprintf("%s-%d", user, n)); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) outliveOnce(ctx context.Context, user string) error {
	revoke, err := r.grantAll(ctx, user)
	if err != nil {
		return err
	}
	client := r.as(user)
	if err := r.may(ctx, client, http.StatusOK); err != nil {
		return errors.Join(err, revoke(ctx))
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	type watching struct {
		path string
		mu   sync.Mutex
		held map[string]bool
		over bool
	}
	all := []*watching{{path: "/query/v1/violations?watch=true&policy=own"}, {path: "/fleet/api/v1/configmaps?watch=1"}}
	var following sync.WaitGroup
	defer following.Wait()
	defer cancel()
	for _, w := range all {
		w.held = map[string]bool{}
		resp, err := r.watch(ctx, client, w.path)
		if err != nil || resp.StatusCode != http.StatusOK {
			return errors.Join(fmt.Errorf("%s: %v, %w", w.path, resp, err), revoke(ctx))
		}
		following.Go(func() {
			defer resp.Body.Close()
			events := json.NewDecoder(resp.Body)
			for {
				var e struct {
					Type   string
					Object struct {
						Metadata struct {
							Name        string
							Namespace   string
							Annotations map[string]string
						}
						Subject struct{ Member, Kind, Namespace, Name string }
					}
				}
				err := events.Decode(&e)
				w.mu.Lock()
				at := fmt.Sprint(e.Object.Metadata.Annotations["federator.dev/member"], e.Object.Metadata.Namespace, e.Object.Metadata.Name, e.Object.Subject)
				switch {
				case err != nil || e.Type == "ERROR":
					w.over = true
					r.note("%s ends: %v %s", w.path, err, e.Type)
				case e.Type == "ADDED" || e.Type == "MODIFIED":
					w.held[at] = true
				case e.Type == "DELETED":
					delete(w.held, at)
				}
				over := w.over
				w.mu.Unlock()
				if over {
					return
				}
			}
		})
	}
	err = kube.Until(ctx, holdsWithin, func() error {
		for _, w := range all {
			w.mu.Lock()
			n := len(w.held)
			w.mu.Unlock()
			if n == 0 {
				return fmt.Errorf("%s says nothing", w.path)
			}
		}
		return nil
	})
	if err := errors.Join(err, revoke(ctx)); err != nil {
		return err
	}
	if err := r.may(ctx, client, http.StatusForbidden); err != nil {
		return err
	}
	err = kube.Until(ctx, holdsWithin, func() error {
		for _, w := range all {
			w.mu.Lock()
			n, over := len(w.held), w.over
			w.mu.Unlock()
			if n > 0 && !over {
				return fmt.Errorf("%s goes on with %d that may not be seen any more", w.path, n)
			}
		}
		return nil
	})
	if err != nil {
		return &Finding{"revoked", err}
	}
	return nil
}

// stranger asks without credentials, and as a web page does.
func (r *rig) stranger(ctx context.Context, _ *rand.Rand, _ string) error {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // whom it asks does not matter
	defer client.CloseIdleConnections()
	serve, err1 := r.fed.Address("serve")
	admin, err2 := r.fed.Address("admin")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	page := map[string]string{"Origin": "https://page.example.org", "Sec-Fetch-Site": "cross-site", "Referer": "https://page.example.org/"}
	for _, c := range []struct {
		url    string
		header map[string]string
	}{
		{"http://" + serve + "/metrics", nil},
		{r.host + "/fleet/api/v1/pods", nil},
		{r.host + "/query/v1/members", nil},
		{"http://" + admin + "/debug/pprof/heap", page},
		{"http://" + admin + "/members", map[string]string{"Host": "page.example.org"}},
	} {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url, nil)
		if err != nil {
			return err
		}
		for k, v := range c.header {
			req.Header.Set(k, v)
		}
		if c.header["Host"] != "" {
			req.Host = c.header["Host"]
		}
		resp, err := client.Do(req)
		if err != nil {
			return &Finding{"stranger", err}
		}
		_, _ = io.Copy(io.Discard, resp.Body) // only the status is looked at
		resp.Body.Close()
		if resp.StatusCode < 400 {
			return &Finding{"stranger", fmt.Errorf("%s with %v: %d", c.url, c.header, resp.StatusCode)}
		}
	}
	return nil
}

// maxPeak is how much the process may have resident at most, in bytes, with budgets of
// 32 MiB a member, whatever is requested.
const maxPeak = 1 << 30

// atOnce asks the same several times at once, and looks at time and memory.
func (r *rig) atOnce(ctx context.Context, times int, accept string, paths ...string) error {
	if err := r.fed.forgetPeak(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var asking sync.WaitGroup
	errs := make([]error, times)
	for i := range times {
		asking.Go(func() {
			at := paths[i%len(paths)]
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.host+at, nil)
			if err != nil {
				errs[i] = err
				return
			}
			req.Header.Set("Accept", accept)
			resp, err := r.admin.Do(req)
			if err != nil {
				errs[i] = &Finding{"time", fmt.Errorf("%.200s: %w", at, err)}
				return
			}
			defer resp.Body.Close()
			if _, err := io.Copy(io.Discard, resp.Body); err != nil && ctx.Err() != nil {
				errs[i] = &Finding{"time", fmt.Errorf("%.200s: %w", at, err)}
			}
			if strings.Contains(at, "labelSelector=") && resp.StatusCode != http.StatusBadRequest {
				errs[i] = &Finding{"answers", fmt.Errorf("a selector of thousands of terms: %d, %.200s", resp.StatusCode, at)}
			}
			if resp.StatusCode == http.StatusInternalServerError {
				errs[i] = &Finding{"answers", fmt.Errorf("%.200s: %d", at, resp.StatusCode)}
			}
		})
	}
	asking.Wait()
	if r.unbroken() != nil {
		return r.unbroken()
	}
	u, err := r.fed.usage(context.WithoutCancel(ctx))
	if err == nil && u.peak > maxPeak {
		err = &Finding{"peak", fmt.Errorf("%d MiB were resident, at most %d MiB should be", u.peak>>20, maxPeak>>20)}
	}
	return errors.Join(errors.Join(errs...), err)
}

// forgetPeak has the kernel measure the peak of resident memory again.
func (p *federator) forgetPeak() error {
	return os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", p.PID()), []byte("5"), 0o600)
}

func (r *rig) manyYAML(ctx context.Context, _ *rand.Rand, _ string) error {
	return r.atOnce(ctx, 4, "application/yaml", "/fleet/api/v1/configmaps", "/fleet/api/v1/pods")
}

func (r *rig) manySelectors(ctx context.Context, rng *rand.Rand, _ string) error {
	terms := make([]string, 2000+rng.IntN(1500))
	for i := range terms {
		terms[i] = "k" + strconv.Itoa(i)
	}
	sets := "l in (" + strings.Join(terms, ",") + ")"
	return r.atOnce(ctx, 4, "application/json", "/fleet/api/v1/configmaps?labelSelector="+url.QueryEscape(strings.Join(terms, ",")),
		"/fleet/api/v1/configmaps?labelSelector="+url.QueryEscape("!"+strings.Join(terms, ",!")), "/fleet/api/v1/configmaps?labelSelector="+url.QueryEscape(sets))
}

// restarted starts two processes in the place of the one, at the same moment, and shows
// them what it has given, and each what the other has: all of it is expired, none of it
// unheard of.
func (r *rig) restarted(ctx context.Context, binary string) error {
	tokens, err := r.tokens(ctx, r.host)
	if err != nil {
		return err
	}
	if err := r.fed.stop(); err != nil {
		return &Finding{"stop", err}
	}
	dirs := []string{r.dir, filepath.Join(r.dir, "twin")}
	if err := os.MkdirAll(dirs[1], 0o755); err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(r.dir, "federator.yaml"))
	if err := errors.Join(err, os.WriteFile(filepath.Join(dirs[1], "federator.yaml"), config, 0o600)); err != nil {
		return err
	}
	twins, errs := make([]*federator, 2), make([]error, 2)
	var starting sync.WaitGroup
	for i, dir := range dirs {
		starting.Go(func() { twins[i], errs[i] = startFederator(ctx, binary, dir) })
	}
	starting.Wait()
	if twins[0] != nil {
		r.fed = twins[0]
	}
	if twins[1] != nil {
		defer func() { _ = twins[1].stop() }() // what its end says, that of the first says
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	var hosts []string
	for _, p := range twins {
		addr, err := p.Address("query")
		if err != nil {
			return err
		}
		hosts = append(hosts, "https://"+addr)
	}
	r.host = hosts[0]
	var found []error
	for i, host := range hosts {
		found = append(found, r.expired(ctx, host, tokens, "of a former process"))
		theirs, err := r.tokens(ctx, hosts[1-i])
		if err != nil {
			return err
		}
		found = append(found, r.expired(ctx, host, theirs, "of another process"))
	}
	return errors.Join(found...)
}

// tokens are what a process gives to go on from: parameters of lists and watches.
func (r *rig) tokens(ctx context.Context, host string) (out []string, err error) {
	var page struct {
		Metadata struct{ ResourceVersion, Continue string }
	}
	err = kube.Until(ctx, patience, func() error {
		code, body, err := get(ctx, r.admin, host+"/fleet/api/v1/configmaps?limit=2", "application/json")
		if err == nil {
			err = json.Unmarshal(body, &page)
		}
		if err == nil && (code != http.StatusOK || page.Metadata.Continue == "") {
			err = fmt.Errorf("a page: %d %.200s", code, body)
		}
		return err
	})
	return []string{
		"/fleet/api/v1/configmaps?limit=2&continue=" + url.QueryEscape(page.Metadata.Continue),
		"/fleet/api/v1/configmaps?watch=1&timeoutSeconds=1&resourceVersion=" + page.Metadata.ResourceVersion,
		"/fleet/api/v1/configmaps?resourceVersionMatch=Exact&resourceVersion=" + page.Metadata.ResourceVersion,
	}, err
}

// expired asks from where another process left off.
func (r *rig) expired(ctx context.Context, host string, tokens []string, whose string) error {
	var found []error
	for _, at := range tokens {
		code, body, err := get(ctx, r.admin, host+at, "application/json")
		if err == nil && code != http.StatusGone && !(strings.Contains(at, "watch=") && strings.Contains(string(body), `"code":410`)) {
			err = fmt.Errorf("%s: %d %.300s", at, code, body)
		}
		if err != nil {
			found = append(found, &Finding{"expired", fmt.Errorf("a token %s: %w", whose, err)})
		}
	}
	return errors.Join(found...)
}
