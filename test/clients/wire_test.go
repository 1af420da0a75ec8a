package clients

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// request is one as k9s, Headlamp and others write it.
type request struct {
	method, path, accept string
	body                 any
	header               http.Header
}

// response is what came of a request.
type response struct {
	*http.Response
	body []byte
}

// send sends a request below the target, and reads the answer.
func (r request) send(ctx context.Context, t *target, c *clients) (response, error) {
	resp, err := r.open(ctx, t, c)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return response{resp, body}, err
}

func (r request) open(ctx context.Context, t *target, c *clients) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		text, err := json.Marshal(r.body)
		if err != nil {
			return nil, err
		}
		body = strings.NewReader(t.named([]string{string(text)})[0])
	}
	method := r.method
	if method == "" {
		method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, method, t.config.Host+t.named([]string{r.path})[0], body)
	if err != nil {
		return nil, err
	}
	for k, v := range r.header {
		req.Header[k] = v
	}
	if r.accept != "" {
		req.Header.Set("Accept", r.accept)
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return c.http.Do(req)
}

// sends returns an act that sends a request; say reads the response.
func sends(r request, say func(response) (answer, error)) act {
	return withClients(func(ctx context.Context, t *target, c *clients) (answer, error) {
		resp, err := r.send(ctx, t, c)
		if err != nil {
			return answer{}, err
		}
		return say(resp)
	})
}

// status says how an answer begins, and what an error says.
func status(r response) (answer, error) {
	var s metav1.Status
	if json.Unmarshal(r.body, &s) == nil && s.Kind == "Status" {
		return answer{text: fmt.Sprintf("%d %s", r.StatusCode, code(string(s.Reason)+": "+strings.Join(strings.Fields(s.Message), " ")))}, nil
	}
	return answer{text: fmt.Sprintf("%d %s", r.StatusCode, code(strings.Split(r.Header.Get("Content-Type"), ";")[0]))}, nil
}

// decoded is status for what is to be a JSON object, of which say tells.
func decoded[T any](say func(T) answer) func(response) (answer, error) {
	return func(r response) (answer, error) {
		if r.StatusCode >= http.StatusBadRequest {
			return status(r)
		}
		var v T
		if err := json.Unmarshal(r.body, &v); err != nil {
			return answer{}, fmt.Errorf("%w in %.200s", err, r.body)
		}
		return say(v), nil
	}
}

const (
	tableAccept      = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	aggregatedAccept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json"
	protobufAccept   = "application/vnd.kubernetes.protobuf"
)

// rowsOf says what a Table has.
func rowsOf(t metav1.Table) answer {
	out := answer{text: fmt.Sprintf("%d rows of %d columns", len(t.Rows), len(t.ColumnDefinitions))}
	kinds := map[string]int{}
	for _, r := range t.Rows {
		var o metav1.PartialObjectMetadata
		if json.Unmarshal(r.Object.Raw, &o) == nil {
			kinds[o.Kind]++
			out.lines = append(out.lines, o.Namespace+"/"+o.Name+" "+o.Labels["site"])
		}
	}
	for k := range kinds {
		out.text += ", each with its " + k
	}
	return out
}

var wireRows = []row{
	{
		act: "`GET /api`", do: sends(request{path: "/api"}, decoded(func(v metav1.APIVersions) answer { return answer{text: strings.Join(v.Versions, ", ")} })),
		real: "v1", fleet: same, flat: same, members: same,
	},
	{
		act: "`GET /apis`", do: sends(request{path: "/apis"}, decoded(groups)),
		real: "21 groups", fleet: same, flat: same, members: same,
	},
	{
		act: "`GET /apis`, aggregated (v2)", do: sends(request{path: "/apis", accept: aggregatedAccept}, decoded(aggregated)),
		real: "apidiscovery.k8s.io/v2 APIGroupDiscoveryList of 21 groups", fleet: same, flat: same, members: same,
	},
	{
		act: "`GET /api/v1`, subresources aside", do: sends(request{path: "/api/v1"}, decoded(func(l metav1.APIResourceList) answer {
			n := 0
			for _, r := range l.APIResources {
				if !strings.Contains(r.Name, "/") {
					n++
				}
			}
			return answer{text: fmt.Sprint(n, " resources")}
		})),
		real: "17 resources", fleet: says("15 resources"), flat: says("15 resources"), members: says("15 resources"), why: "what cannot be listed is left out",
	},
	{
		act: "`GET /version`", do: sends(request{path: "/version"}, decoded(func(v map[string]string) answer { return answer{text: v["gitVersion"] + " on " + v["platform"]} })),
		real: "v1.36.3 on linux/amd64", fleet: same, flat: same, members: same,
	},
	{
		act: "list as Table, `includeObject=Object` (k9s)", do: sends(request{path: "/api/v1/pods?includeObject=Object", accept: tableAccept}, decoded(rowsOf)),
		real: "4 rows of 9 columns, each with its Pod", fleet: all("12 rows of 10 columns, each with its Pod"), flat: all("12 rows of 9 columns, each with its Pod"), members: same, why: "CLUSTER is a column more",
	},
	{
		act: "list as Table, `includeObject=Metadata`", do: sends(request{path: "/api/v1/pods?includeObject=Metadata", accept: tableAccept}, decoded(rowsOf)),
		real: "4 rows of 9 columns, each with its PartialObjectMetadata", fleet: all("12 rows of 10 columns, each with its PartialObjectMetadata"), flat: all("12 rows of 9 columns, each with its PartialObjectMetadata"), members: same, why: "CLUSTER is a column more",
	},
	{
		act: "watch as Table, `includeObject=Object`", do: tableWatch("Object"),
		real: "9 columns with the first event only, each with its Pod", fleet: all("10 columns with the first event only, each with its Pod"), flat: all("9 columns with the first event only, each with its Pod"), members: same, why: "CLUSTER is a column more",
	},
	{
		act: "watch as Table, `includeObject=Metadata`", do: tableWatch("Metadata"),
		real: "9 columns with the first event only, each with its PartialObjectMetadata", fleet: all("10 columns with the first event only, each with its PartialObjectMetadata"), flat: all("9 columns with the first event only, each with its PartialObjectMetadata"), members: same, why: "CLUSTER is a column more",
	},
	{
		act: "watch over a WebSocket, no protocol", do: socketWatch(),
		real: "ADDED as text, protocol nothing", fleet: same, flat: same, members: same,
	},
	{
		act: "watch over a WebSocket, `base64.binary.k8s.io` (Headlamp)", do: socketWatch("base64.binary.k8s.io"),
		real: "ADDED as text, protocol `base64.binary.k8s.io`", fleet: same, flat: same, members: same,
	},
	{
		act: "watch over a WebSocket, `v4.channel.k8s.io`, which is for exec", do: socketWatch("v4.channel.k8s.io"),
		real: "ADDED as text, protocol `v4.channel.k8s.io`", fleet: same, flat: same, members: same,
	},
	{
		act: "`watch=true&allowWatchBookmarks=true&resourceVersion=…`", do: bookmarked,
		real: "ADDED", fleet: same, flat: same, members: same,
	},
	{
		act: "resourceVersion as a JavaScript number", do: sends(request{path: "/api/v1/pods"}, decoded(func(l metav1.PartialObjectMetadataList) answer {
			for _, v := range append([]string{l.ResourceVersion}, versions(l)...) {
				n, err := strconv.ParseUint(v, 10, 64)
				if err != nil || n == 0 || n >= 1<<53 {
					return answer{text: v + " is not below 2^53"}
				}
			}
			return answer{text: "below 2^53"}
		})),
		real: "below 2^53", fleet: same, flat: same, members: same,
	},
	{
		act: "paging with `limit=3`, and `remainingItemCount`", do: sends(request{path: "/api/v1/pods?limit=3"}, decoded(page)),
		real: "3 items and more, 1 remain", fleet: says("3 items and more, 9 remain"), flat: says("3 items and more, 9 remain"), members: same,
	},
	{
		act: "`limit=500`, all in one page", do: sends(request{path: "/api/v1/pods?limit=500"}, decoded(page)),
		real: "4 items", fleet: says("12 items"), flat: says("12 items"), members: same,
	},
	{
		act: "list at a resourceVersion of the future", do: sends(request{path: "/api/v1/pods?resourceVersion=9007199254740990"}, func(r response) (answer, error) {
			var s metav1.Status
			err := json.Unmarshal(r.body, &s)
			return answer{text: fmt.Sprint(r.StatusCode, " ", s.Reason)}, err
		}),
		real: "504 Timeout", fleet: says("410 Expired"), flat: says("410 Expired"), members: says("410 Expired"),
		why: "federator gave none of that number: list again",
	},
	{
		act: "SelfSubjectRulesReview of shop: rules that let list pods", do: sends(request{
			method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
			body: map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": map[string]any{"namespace": "{shop}"}},
		}, decoded(rules)),
		real: "pods true, secrets true, incomplete false", fleet: same, flat: same, members: same,
	},
	{
		act: "SelfSubjectRulesReview, of who may read pods only", user: bob, do: sends(request{
			method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews",
			body: map[string]any{"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectRulesReview", "spec": map[string]any{"namespace": "{shop}"}},
		}, decoded(rules)),
		real: "pods true, secrets false, incomplete false", fleet: same, flat: same, members: same,
	},
	{
		act: "SelfSubjectAccessReview: list pods, of who may", user: bob, do: sends(review("list", "", "pods"), decoded(allowed)),
		real: "allowed", fleet: same, flat: same, members: same,
	},
	{
		act: "SelfSubjectAccessReview: list secrets, of who may not", user: bob, do: sends(review("list", "", "secrets"), decoded(allowed)),
		real: "denied", fleet: same, flat: same, members: same,
	},
	{
		act: "list of secrets, of who may not", user: bob, do: sends(request{path: "/api/v1/secrets"}, status),
		real: "403 `Forbidden: secrets is forbidden: User \"bob\" cannot list resource \"secrets\" in API group \"\" at the cluster scope`", fleet: says("403 `Forbidden: secrets is forbidden: User \"bob\" cannot list resource \"secrets\" in API group \"members.federator.dev\" in any member`"), flat: says("403 `Forbidden: secrets is forbidden: User \"bob\" cannot list resource \"secrets\" in API group \"members.federator.dev\" at the cluster scope`"), members: says("403 `Forbidden: secrets is forbidden: User \"bob\" cannot list resource \"secrets\" in API group \"members.federator.dev\" in member \"acme/eu-1\"`"),
	},
	{
		act: "list of pods, of who may read these only", user: bob, do: sends(request{path: "/api/v1/pods?limit=500"}, decoded(page)),
		real: "4 items", fleet: says("12 items"), flat: says("12 items"), members: same,
	},
	{
		act: "`GET /openapi/v2` in protobuf", do: sends(request{path: "/openapi/v2", accept: "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"}, status),
		real: "200 `application/com.github.proto-openapi.spec.v2.v1.0+protobuf`", fleet: same, flat: same, members: same,
	},
	{
		act: "`GET /openapi/v3`, and again by its ETag", do: withClients(etag("/openapi/v3")),
		real: "200, 200", fleet: says("200, 304"), flat: says("200, 304"), members: says("200, 304"), why: "federator's index of OpenAPI has an ETag, too",
	},
	{
		act: "`GET /openapi/v2`, and again by its ETag", do: withClients(etag("/openapi/v2")),
		real: "200, 304", fleet: same, flat: same, members: same,
	},
	{
		act: "`Accept-Encoding: gzip` of what is long", do: withClients(zipped),
		real: "gzip", fleet: same, flat: same, members: same,
	},
	{
		act: "protobuf of a built-in kind", do: sends(request{path: "/api/v1/pods", accept: protobufAccept}, status),
		real: "200 `application/vnd.kubernetes.protobuf`", fleet: same, flat: same, members: same,
	},
	{
		act: "protobuf alone of a custom kind", do: sends(request{path: "/apis/harbour.example/v1/boats", accept: protobufAccept}, func(r response) (answer, error) {
			return answer{text: fmt.Sprint(r.StatusCode)}, nil
		}),
		real: "406", fleet: same, flat: same, members: same,
	},
	{
		act: "`GET /apis/metrics.k8s.io/v1beta1`, which nobody serves", do: sends(request{path: "/apis/metrics.k8s.io/v1beta1"}, func(r response) (answer, error) {
			return answer{text: fmt.Sprint(r.StatusCode)}, nil
		}),
		real: "404", fleet: same, flat: same, members: same,
	},
	{
		act: "GET of one name", do: sends(request{path: "/api/v1/namespaces/{shop}/pods/web-0"}, status),
		real: "200 `application/json`", fleet: says("409 `AmbiguousName: pods \"web-0\" is ambiguous, 3 members have it: acme/ap.1, acme/eu-1, acme/us-1. Choose one with --context acme/ap.1 (federator kubeconfig writes a context per member), or use the path /members/acme/ap.1. To list all: kubectl get pods -n shop --field-selector metadata.name=web-0 -o yaml`"), flat: same, members: same, why: "GET gives one object, and three are of that name; a Table shows all",
	},
	{
		act: "`Warning` of an answer, Events", do: sends(request{path: "/api/v1/events"}, func(r response) (answer, error) {
			return answer{text: code(r.Header.Get("Warning"))}, nil
		}),
		real: "nothing", fleet: says("`299 - \"Event is partially stored: only what changed within 1h0m0s, at most 10% of the member's budget (acme/ap.1, acme/eu-1, acme/us-1)\"`"), flat: says("`299 - \"Event is partially stored: only what changed within 1h0m0s, at most 10% of the member's budget (acme/ap.1, acme/eu-1, acme/us-1)\"`"), members: says("`299 - \"Event is partially stored: only what changed within 1h0m0s, at most 10% of the member's budget (acme/eu-1)\"`"), why: "Events are kept for an hour, which makes them Partial",
	},
	{
		act: "a parameter that nobody knows", do: sends(request{path: "/api/v1/pods?nonsense=1"}, status),
		real: "200 `application/json`", fleet: says("400 `BadRequest: parameter \"nonsense\" is not supported`"), flat: says("400 `BadRequest: parameter \"nonsense\" is not supported`"), members: says("400 `BadRequest: parameter \"nonsense\" is not supported`"), why: "what is not understood is refused, never ignored",
	},
	{
		act: "`Impersonate-User`", do: sends(request{path: "/api/v1/pods", header: http.Header{"Impersonate-User": {"bob"}}}, status),
		real: "200 `application/json`", fleet: says("403 `Forbidden: impersonation is not supported: use that user's own credentials`"), flat: says("403 `Forbidden: impersonation is not supported: use that user's own credentials`"), members: says("403 `Forbidden: impersonation is not supported: use that user's own credentials`"), why: "nobody speaks for another",
	},
	{
		act: "PUT of a Pod", do: sends(request{method: http.MethodPut, path: "/api/v1/namespaces/{shop}/pods/web-0?dryRun=All", body: map[string]any{"apiVersion": "v1", "kind": "Pod"}}, status),
		real: "400 `BadRequest: the name of the object (web-0 based on URL) was undeterminable: name must be provided`", fleet: says("405 `MethodNotAllowed: update is not supported on resources of kind \"pods\": the query API is read-only; send the request to the API server of the member, for example with kubectl --context`"), flat: says("405 `MethodNotAllowed: update is not supported on resources of kind \"pods\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"), members: says("405 `MethodNotAllowed: update is not supported on resources of kind \"pods\": the query API is read-only; send the request to the API server of acme/eu-1, for example with kubectl --context`"),
	},
}

func groups(l metav1.APIGroupList) answer {
	var names []string
	for _, g := range l.Groups {
		names = append(names, g.Name+"/"+g.PreferredVersion.Version)
	}
	return answer{text: fmt.Sprint(len(names), " groups"), lines: names}
}

func aggregated(l struct {
	APIVersion, Kind string
	Items            []struct {
		Metadata metav1.ObjectMeta
		Versions []struct{ Version string }
	}
},
) answer {
	out := answer{text: fmt.Sprintf("%s %s of %d groups", l.APIVersion, l.Kind, len(l.Items))}
	for _, g := range l.Items {
		for _, v := range g.Versions {
			out.lines = append(out.lines, g.Metadata.Name+"/"+v.Version)
		}
	}
	return out
}

func page(l metav1.PartialObjectMetadataList) answer {
	text := fmt.Sprint(len(l.Items), " items")
	if l.Continue != "" {
		text += " and more"
	}
	if l.RemainingItemCount != nil {
		text += fmt.Sprintf(", %d remain", *l.RemainingItemCount)
	}
	return answer{text: text}
}

func versions(l metav1.PartialObjectMetadataList) (out []string) {
	for _, o := range l.Items {
		out = append(out, o.ResourceVersion)
	}
	return out
}

func review(verb, group, resource string) request {
	return request{
		method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		body: map[string]any{
			"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
			"spec": map[string]any{"resourceAttributes": map[string]any{"verb": verb, "group": group, "resource": resource}},
		},
	}
}

func allowed(r struct{ Status struct{ Allowed bool } }) answer {
	if r.Status.Allowed {
		return answer{text: "allowed"}
	}
	return answer{text: "denied"}
}

// rules says whether rules of a SelfSubjectRulesReview let list pods, and secrets.
func rules(r struct {
	Status struct {
		ResourceRules []struct{ Verbs, APIGroups, Resources []string }
		Incomplete    bool
	}
},
) answer {
	may := map[string]bool{}
	has := func(all []string, one string) bool {
		return strings.Contains(","+strings.Join(all, ",")+",", ","+one+",") || strings.Contains(","+strings.Join(all, ",")+",", ",*,")
	}
	for _, rule := range r.Status.ResourceRules {
		for _, resource := range []string{"pods", "secrets"} {
			if has(rule.Verbs, "list") && has(rule.APIGroups, "") && has(rule.Resources, resource) {
				may[resource] = true
			}
		}
	}
	return answer{text: fmt.Sprintf("pods %t, secrets %t, incomplete %t", may["pods"], may["secrets"], r.Status.Incomplete)}
}

// etag asks twice, the second time with the ETag of the first answer.
func etag(path string) func(context.Context, *target, *clients) (answer, error) {
	return func(ctx context.Context, t *target, c *clients) (answer, error) {
		first, err := request{path: path}.send(ctx, t, c)
		if err != nil {
			return answer{}, err
		}
		second, err := request{path: path, header: http.Header{"If-None-Match": {first.Header.Get("Etag")}}}.send(ctx, t, c)
		if err != nil {
			return answer{}, err
		}
		return answer{text: fmt.Sprintf("%d, %d", first.StatusCode, second.StatusCode)}, nil
	}
}

// zipped asks for a long answer in gzip, and reads it.
func zipped(ctx context.Context, t *target, c *clients) (answer, error) {
	resp, err := request{path: "/openapi/v2", header: http.Header{"Accept-Encoding": {"gzip"}}}.send(ctx, t, c)
	if err != nil {
		return answer{}, err
	}
	r, err := gzip.NewReader(bytes.NewReader(resp.body))
	if err != nil {
		return answer{}, err
	}
	var v struct{ Swagger string }
	err = json.NewDecoder(r).Decode(&v)
	return answer{text: resp.Header.Get("Content-Encoding")}, err
}
