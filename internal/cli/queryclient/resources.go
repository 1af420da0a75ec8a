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
	group, version, plural string
	names                  []string // singular and short ones
}

func (o resource) String() string {
	if o.group == "" {
		return o.plural
	}
	return o.plural + "." + o.group
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
						out = append(out, resource{g.Name, v.Version, r.Resource, append(r.ShortNames, r.SingularResource)})
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

// ResourcePath returns the path of a list of a resource, which may be named in any way
// that kubectl accepts.
func (a *Client) ResourcePath(ctx context.Context, name, namespace string) (string, error) {
	resources, err := a.listable(ctx)
	if err != nil {
		return "", err
	}
	for _, o := range resources {
		if o.String() != name && o.plural != name && !slices.Contains(o.names, name) {
			continue
		}
		path := a.Target + "/apis/" + o.group + "/" + o.version
		if o.group == "" {
			path = a.Target + "/api/" + o.version
		}
		if namespace != "" {
			path += "/namespaces/" + url.PathEscape(namespace)
		}
		return path + "/" + o.plural, nil
	}
	return "", fmt.Errorf("unknown resource %q", name)
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
