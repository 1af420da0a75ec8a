package queryclient

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"

	apidiscovery "k8s.io/api/apidiscovery/v2"
)

const acceptDiscovery = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// resource is a resource that the query API serves.
type resource struct {
	group, version, plural, kind string
	names                        []string // singular and short ones
}

func (o resource) String() string {
	if o.group == "" {
		return o.plural
	}
	return o.plural + "." + o.group
}

// fullKind is the kind as kubectl writes it.
func (o resource) fullKind() string {
	if o.group == "" {
		return o.kind
	}
	return o.kind + "." + o.group
}

// listable returns the resources that are served and can be listed.
func (a *Client) listable(ctx context.Context) ([]resource, error) {
	var out []resource
	for _, path := range []string{"/api", "/apis"} {
		body, err := a.Get(ctx, a.Target+path, nil, acceptDiscovery)
		if err != nil {
			return nil, err
		}
		var list apidiscovery.APIGroupDiscoveryList
		if err := json.Unmarshal(body, &list); err != nil {
			return nil, err
		}
		for _, g := range list.Items {
			for _, v := range g.Versions {
				for _, r := range v.Resources {
					if slices.Contains(r.Verbs, "list") {
						kind := ""
						if r.ResponseKind != nil {
							kind = r.ResponseKind.Kind
						}
						out = append(out, resource{g.Name, v.Version, r.Resource, kind, append(r.ShortNames, r.SingularResource)})
					}
				}
			}
		}
	}
	return out, nil
}

// resourceNames returns the resources that are served, as <plural>[.<group>].
func (a *Client) resourceNames(ctx context.Context) ([]string, error) {
	resources, err := a.listable(ctx)
	var out []string
	for _, o := range resources {
		out = append(out, o.String())
	}
	return out, err
}

// Resource is a resource that the query API serves.
type Resource struct {
	Name string // <plural>[.<group>]
	root string // the path of its group and version
	of   string // its plural
	kind string // such as Deployment.apps
}

// Path returns the path of a list, in a namespace or, with "", in all of them.
func (r *Resource) Path(namespace string) string {
	if namespace != "" {
		return r.root + "/namespaces/" + url.PathEscape(namespace) + "/" + r.of
	}
	return r.root + "/" + r.of
}

// Resource returns a resource, which may be named in any way that kubectl accepts.
func (a *Client) Resource(ctx context.Context, name string) (*Resource, error) {
	resources, err := a.listable(ctx)
	if err != nil {
		return nil, err
	}
	for _, o := range resources {
		if o.String() != name && o.plural != name && !slices.Contains(o.names, name) {
			continue
		}
		root := a.Target + "/apis/" + o.group + "/" + o.version
		if o.group == "" {
			root = a.Target + "/api/" + o.version
		}
		return &Resource{o.String(), root, o.plural, o.fullKind()}, nil
	}
	return nil, fmt.Errorf("unknown resource %q", name)
}

// Kind returns the kind of a resource, such as Deployment.apps. The resource may be named in any way that kubectl accepts, or as
// its kind is, whose objects may all be gone.
func (a *Client) Kind(ctx context.Context, name string) (string, error) {
	if name != "" && name[0] >= 'A' && name[0] <= 'Z' {
		return name, nil
	}
	r, err := a.Resource(ctx, name)
	if err != nil {
		return "", err
	}
	return r.kind, nil
}

// ResourcePath returns the path of a list of a resource, as Resource finds it.
func (a *Client) ResourcePath(ctx context.Context, name, namespace string) (string, error) {
	r, err := a.Resource(ctx, name)
	if err != nil {
		return "", err
	}
	return r.Path(namespace), nil
}

// Names returns the names of the objects of a list.
func (a *Client) Names(ctx context.Context, path string, query url.Values) ([]string, error) {
	body, err := a.Get(ctx, path, query, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json")
	if err != nil {
		return nil, err
	}
	var list struct {
		Items []struct {
			Metadata struct {
				Name string `json:"name"`
			} `json:"metadata"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return nil, err
	}
	var out []string
	for _, i := range list.Items {
		out = append(out, i.Metadata.Name)
	}
	return out, nil
}

// Members returns the names of the members that the caller may see.
func (a *Client) Members(ctx context.Context) ([]string, error) {
	body, err := a.Get(ctx, "/query/v1/members", nil, "application/json")
	if err != nil {
		return nil, err
	}
	var answer struct {
		Items []struct {
			Name string `json:"name"`
		} `json:"items"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(answer.Items))
	for _, m := range answer.Items {
		names = append(names, m.Name)
	}
	return names, nil
}
