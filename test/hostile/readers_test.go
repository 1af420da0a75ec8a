package hostile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"federator.dev/federator/test/kube"
)

// right is that a reader may get, list and watch a kind in an honest member.
type right struct{ member, grant string }

// reader asks at random, with random grants.
type reader struct {
	r      *rig
	user   string
	client *http.Client
	rights map[right]bool
}

// answerWithin bounds how long an answer may take on a busy machine; the server's own
// bound is 20 s.
const answerWithin = 40 * time.Second

// newReader draws grants, and waits until they have come into force.
func (r *rig) newReader(ctx context.Context, user string, rng *rand.Rand) (*reader, error) {
	x := &reader{r: r, user: user, client: r.as(user), rights: map[right]bool{}}
	for i := range 1 + rng.IntN(3) {
		k := markedKinds[rng.IntN(len(markedKinds))]
		rule := rbacv1.PolicyRule{APIGroups: []string{"members.federator.dev"}, Resources: []string{k.grant()}, Verbs: []string{"get", "list", "watch"}}
		name, rbac := fmt.Sprintf("%s-%d", user, i), r.hub.Client().RbacV1()
		subjects := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: user}}
		meta := metav1.ObjectMeta{Name: name}
		if rng.IntN(3) == 0 { // in all members, attackers included
			_, err1 := rbac.ClusterRoles().Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
			_, err2 := rbac.ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}}, metav1.CreateOptions{})
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			for _, m := range honest {
				x.rights[right{m, k.grant()}] = true
			}
			continue
		}
		member := honest[rng.IntN(len(honest))]
		namespace, plain, _ := strings.Cut(member, "/")
		rule.ResourceNames = []string{plain}
		_, err1 := rbac.Roles(namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{rule}}, metav1.CreateOptions{})
		_, err2 := rbac.RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}}, metav1.CreateOptions{})
		if err := errors.Join(err1, err2); err != nil {
			return nil, err
		}
		x.rights[right{member, k.grant()}] = true
	}
	return x, kube.Until(ctx, patience, func() error {
		for _, m := range honest {
			for _, k := range markedKinds {
				code, _, err := get(ctx, x.client, r.host+"/members/"+m+k.path+"/"+k.resource+"?limit=1", "application/json")
				if err != nil {
					return err
				}
				if may := x.rights[right{m, k.grant()}]; may != (code == http.StatusOK) {
					return fmt.Errorf("%s reads %s of %s: %d, may: %v", user, k.grant(), m, code, may)
				}
			}
		}
		return nil
	})
}

// look finds what is in an answer and may not be.
func (x *reader) look(what string, code int, body []byte) error {
	for _, m := range honest {
		for _, k := range markedKinds {
			at := mark(m, k)
			if !bytes.Contains(body, []byte(at)) || strings.Contains(what, at) {
				continue
			}
			if !x.rights[right{m, k.grant()}] {
				i := bytes.Index(body, []byte(at))
				return leak("%.500s shows %s of %s to %s, who may read %v:\n…%s…", what, k.grant(), m, x.user, slices.Collect(maps.Keys(x.rights)), body[max(0, i-300):min(len(body), i+300)])
			}
			x.r.shown.Add(1)
		}
	}
	if i := bytes.Index(body, []byte(RawError)); i >= 0 {
		return leak("%.500s shows %s the words of a member: …%s…", what, x.user, body[max(0, i-300):min(len(body), i+300)])
	}
	if code == http.StatusInternalServerError || code == http.StatusNotAcceptable && !strings.HasPrefix(what, "/query/") && !strings.Contains(what, "/openapi/") {
		return &Finding{"answers", fmt.Errorf("%.500s: %d %.600s", what, code, body)}
	}
	if strings.HasPrefix(what, "/query/v1/rego") {
		return nil // documents have the objects' own
	}
	for _, m := range revisions.FindAllSubmatch(body[:min(len(body), 1<<20)], -1) {
		if n, err := strconv.ParseUint(string(m[1]), 10, 64); err == nil && n >= 1<<53 {
			return &Finding{"revisions", fmt.Errorf("%.300s has %s, which JavaScript cannot read", what, m[0])}
		}
	}
	return nil
}

func leak(format string, args ...any) error { return &Finding{"leak", fmt.Errorf(format, args...)} }

var revisions = regexp.MustCompile(`"(?:resourceVersion|revision)": ?"(\d+)"`)

var accepts = []string{
	"application/json", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
	"application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json", "*/*",
}

// ask makes one random request.
func (x *reader) ask(ctx context.Context, rng *rand.Rand, attackers []string) error {
	what := x.request(rng, attackers)
	if strings.Contains(what, "limit=") {
		if !byHand() {
			return nil // what pages keep alive a short run does not wait for
		}
		now := time.Now()
		x.r.paged.Store(&now)
	}
	x.r.requests.Add(1)
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	q, _ := url.QueryUnescape(what)
	watch := strings.Contains(what, "watch=")
	accept := accepts[rng.IntN(len(accepts))]
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, x.r.host+what, nil)
	if err != nil {
		return nil // it is no request at all
	}
	req.Header.Set("Accept", accept)
	if watch {
		var end context.CancelFunc
		ctx, end = context.WithTimeout(ctx, time.Duration(50+rng.IntN(1500))*time.Millisecond)
		defer end()
		req = req.WithContext(ctx)
	}
	started := time.Now()
	resp, err := x.client.Do(req)
	if err != nil {
		if watch || ctx.Err() != nil && time.Since(started) < answerWithin {
			return nil
		}
		if !x.r.fed.Alive() {
			return x.r.unbroken()
		}
		return &Finding{"answers", fmt.Errorf("%.500s: %w", what, err)}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil && !watch && ctx.Err() != nil && time.Since(started) >= answerWithin {
		return &Finding{"time", fmt.Errorf("%.500s is not answered within %s", what, answerWithin)}
	}
	body = append(body, fmt.Sprint(resp.Header)...)
	return x.look(q+" as "+accept, resp.StatusCode, body)
}

// request draws one: well-formed, mostly.
func (x *reader) request(rng *rand.Rand, attackers []string) string {
	k := markedKinds[rng.IntN(len(markedKinds))]
	member := honest[rng.IntN(len(honest))]
	if len(attackers) > 0 && rng.IntN(3) == 0 {
		member = attackers[rng.IntN(len(attackers))]
	}
	of := honest[rng.IntN(len(honest))]
	ns := markedNamespaces[rng.IntN(len(markedNamespaces))]
	name := fmt.Sprintf("%s-%s-%d", mark(of, k), ns, rng.IntN(3))
	prefix := one(rng, "/fleet", "/fleet", "/members/"+member)
	q := url.Values{}
	many := func(n int, f func(int) string) string {
		out := make([]string, n)
		for i := range out {
			out[i] = f(i)
		}
		return strings.Join(out, ",")
	}
	for name, values := range map[string][]string{
		"limit":           {"1", "3", "500", "0", "-1", "x", "99999999999999999999"},
		"resourceVersion": {"0", "1", "", "x", "9007199254740993", "18446744073709551615"},
		"labelSelector": {
			"l=" + mark(of, k), "l!=" + mark(of, k), "federator.dev/member=" + strings.Replace(of, "/", ".", 1), "bad", "!bad", "l in (", "",
			"member.federator.dev/tier=honest", "member.federator.dev/tier notin (hostile)", many(101, func(i int) string { return fmt.Sprintf("l%d!=v", i) }),
			many(3000, func(i int) string { return fmt.Sprintf("k%d", i) }),
		},
		"fieldSelector": {"metadata.namespace=" + ns, "metadata.name!=x", "metadata.name=" + name, "spec.nodeName!=n", "a=b", "=,=", "spec..x=y", many(150, func(i int) string { return "metadata.name!=x" + strconv.Itoa(i) })},
		"continue":      {"x", "", strings.Repeat("c", 3000), "eyJ2IjoxfQ"},
		"require":       {"synced", "x"},
		"watch":         {"1", "true"},
	} {
		if rng.IntN(6) == 0 {
			q.Set(name, values[rng.IntN(len(values))])
		}
	}
	if q.Has("watch") && rng.IntN(2) == 0 {
		q.Set("sendInitialEvents", "true")
		q.Set("resourceVersionMatch", "NotOlderThan")
		q.Set("allowWatchBookmarks", "true")
	}
	at := ""
	switch rng.IntN(16) {
	case 0, 1, 2, 3:
		at = prefix + k.path + "/" + k.resource
	case 4, 5:
		at = prefix + k.path + "/namespaces/" + ns + "/" + k.resource
	case 6:
		at = prefix + k.path + "/namespaces/" + ns + "/" + k.resource + "/" + name
		q = url.Values{}
	case 7:
		at, q = prefix+one(rng, "/apis", "/api", "/version", "/openapi/v3", "/openapi/v2", "/healthz", "/readyz", k.path), url.Values{}
	case 8:
		at, q = "/query/v1/count", url.Values{"resource": {k.grant()}, "groupBy": {one(rng, "member", "namespace", "label:l", "field:metadata.name", "memberLabel:tier", "kind", "x")}}
	case 9:
		at, q = "/query/v1/related", url.Values{"resource": {k.grant()}, "member": {of}, "namespace": {ns}, "name": {name}, "depth": {one(rng, "1", "5", "99")}}
	case 10:
		at, q = "/query/v1/members", url.Values{}
	case 11, 12, 13:
		at, q = "/query/v1/rego", url.Values{"query": {x.query(rng, member)}}
	case 14:
		at, q = "/query/v1/violations", url.Values{}
		for name, values := range map[string][]string{
			"policy": {"own", "hosts", "keys", "costly"}, "member": {member}, "limit": {"1", "500", "-1"}, "groupBy": {"member", "kind", "x"}, "watch": {"true"}, "kind": {string(k.kind)},
		} {
			if rng.IntN(4) == 0 {
				q.Set(name, values[rng.IntN(len(values))])
			}
		}
	case 15:
		at = prefix + one(rng, "/api/v1", "/apis/apps/v1", "/api/v9", "/apis/a/b", "/api/v1/namespaces/..") + "/" + one(rng, "pods", "secrets", "invented1s", "%2e%2e", "", strings.Repeat("p", 300), "pods/x/log")
	}
	if len(q) == 0 {
		return at
	}
	return at + "?" + q.Encode()
}

// query draws a question in Rego.
func (x *reader) query(rng *rand.Rand, member string) string {
	k := one(rng, "Pod", "Secret", "ConfigMap", "Deployment.apps", "Ingress.networking.k8s.io", "Service", "ServiceAccount", "Zzz", "ClusterRole.rbac.authorization.k8s.io")
	of := one(rng, "Pod", "Secret", "ConfigMap")
	return one(rng,
		"x := data.fleet", "x := data", "x := data.fleet.objects", fmt.Sprintf("x := data.fleet.objects[%q]", k), fmt.Sprintf("data.fleet.objects[%q][m][ns][n]", k),
		fmt.Sprintf("data.fleet.objects[%q][%q]", k, member), fmt.Sprintf("x := data.fleet.by_name[%q]", k), fmt.Sprintf("count(data.fleet.objects[%q][%q][ns], n)", k, member),
		"x := data.fleet.views", "data.fleet.views.hosts.hosts[key]", "data.fleet.scopes[m][k]", "data.fleet.members[m]", "walk(data.fleet.objects, [p, v]); is_string(v)",
		fmt.Sprintf("data.fleet.objects[%q][m][ns][n]; data.fleet.objects[%q][m2][ns2][n2]", k, of),
		fmt.Sprintf("a := data.fleet.objects[%q][m][ns][n]; b := data.fleet.objects[%q][m2][ns2][n2]; c := data.fleet.objects.Pod[m3][ns3][n3]; d := data.fleet.objects.Service[m4][ns4][n4]", k, of),
		"numbers.range(1, 3000)[i]; numbers.range(1, 3000)[j]", `x := concat("", [y | some i in numbers.range(1, 20000); y := "0123456789"])`, "x := [i | some i in numbers.range(1, 1000000)]",
		"data.fleet.objects[", "print(data.fleet.views)", `x := json.marshal(data.fleet.objects)`,
	)
}
