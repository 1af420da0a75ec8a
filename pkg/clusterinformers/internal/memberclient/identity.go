package memberclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/clusterinformers/internal/message"
)

// Version returns the API server's version, "" where it does not say.
func (a *Client) Version(ctx context.Context) (string, error) {
	c, err := a.REST(corev1.SchemeGroupVersion)
	if err != nil {
		return "", err
	}
	const path = "/version"
	body, err := c.Get().AbsPath(path).MaxRetries(0).Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return "", nil // not every server has it or allows it: all is JSON then
	case err != nil:
		return "", WrapRequest(path, err)
	}
	var info struct {
		GitVersion string `json:"gitVersion"`
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return "", &MalformedError{fmt.Errorf("GET %s: the response is not from an API server: %w", path, err)}
	}
	return message.Clip(info.GitVersion), nil
}

// ClusterUID returns the UID of kube-system, which identifies the cluster. The answer
// is not older than a resourceVersion, unless that is "".
func (a *Client) ClusterUID(ctx context.Context, notOlder string) (string, error) {
	c, err := a.REST(corev1.SchemeGroupVersion)
	if err != nil {
		return "", err
	}
	const path = "/api/v1/namespaces/" + metav1.NamespaceSystem
	meta, err := getMetadata(ctx, c.Get().Resource("namespaces").Name(metav1.NamespaceSystem).
		VersionedParams(&metav1.GetOptions{ResourceVersion: notOlder}, scheme.ParameterCodec), path)
	return meta.UID, err
}

// optionsVersion is that of the options of requests. client-go's scheme has them in groups of its own only, and is
// asked for custom kinds, too.
var optionsVersion = schema.GroupVersion{Version: "v1"}

// objectMeta is what is asked of an answer. What else it says may be anything.
type objectMeta struct {
	Name            string `json:"name"`
	UID             string `json:"uid"`
	ResourceVersion string `json:"resourceVersion"`
}

// VersionAt returns the resourceVersion that an object had at one, "" where there was none, and the
// resourceVersion of the answer: of a server that does not list at a resourceVersion that is another one.
func (a *Client) VersionAt(ctx context.Context, of schema.GroupVersionResource, namespace, name, at string) (version, answered string, err error) {
	c, err := a.REST(of.GroupVersion())
	if err != nil {
		return "", "", err
	}
	const accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1," + runtime.ContentTypeJSON
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name).String(), ResourceVersion: at, ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	req := c.Get().NamespaceIfScoped(namespace, namespace != "").Resource(of.Resource).
		SpecificallyVersionedParams(&opts, scheme.ParameterCodec, optionsVersion)
	var list struct {
		Metadata objectMeta `json:"metadata"`
		Items    []struct {
			Metadata objectMeta `json:"metadata"`
		} `json:"items"`
	}
	switch err := getJSON(ctx, req, accept, of.String(), &list); {
	case errors.Is(err, errBodyTooLarge): // it does not select
		return "", "", &MalformedError{err}
	case err != nil:
		return "", "", err
	}
	for _, item := range list.Items {
		if item.Metadata.Name == name { // not every server selects
			version = item.Metadata.ResourceVersion
		}
	}
	return version, list.Metadata.ResourceVersion, nil
}

// getMetadata reads the metadata of an object or list. The error of an answer that has
// none is a *MalformedError, which says what is malformed.
func getMetadata(ctx context.Context, req *rest.Request, path string) (objectMeta, error) {
	var answer struct {
		Metadata objectMeta `json:"metadata"`
	}
	err := getJSON(ctx, req, runtime.ContentTypeJSON, path, &answer)
	return answer.Metadata, err
}

func getJSON(ctx context.Context, req *rest.Request, accept, path string, answer any) error {
	result := req.SetHeader("Accept", accept).MaxRetries(0).Do(ctx)
	if err := result.Error(); err != nil { // with the causes that a Status names, which Raw's has not
		return WrapRequest(path, err)
	}
	body, err := result.Raw()
	if err != nil {
		return WrapRequest(path, err)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return &MalformedError{fmt.Errorf("GET %s: the response is malformed: %w", path, err)}
	}
	return nil
}

// NewestResourceVersion returns the resourceVersion that the server is at, for a kind.
func (a *Client) NewestResourceVersion(ctx context.Context, of schema.GroupVersionResource) (string, error) {
	c, err := a.REST(of.GroupVersion())
	if err != nil {
		return "", err
	}
	req := c.Get().Resource(of.Resource).SpecificallyVersionedParams(&metav1.ListOptions{Limit: 1}, scheme.ParameterCodec, optionsVersion)
	meta, err := getMetadata(ctx, req, of.String())
	return meta.ResourceVersion, err
}

// Query asks a federator's query API, at the root of the server, and returns the answer.
func (a *Client) Query(ctx context.Context, path string, params url.Values) ([]byte, error) {
	root, err := url.Parse(a.config.Host)
	if err != nil {
		return nil, err
	}
	cfg := rest.CopyConfig(a.config)
	cfg.Host = root.Scheme + "://" + root.Host
	client := &Client{config: cfg, http: a.http}
	c, err := client.REST(corev1.SchemeGroupVersion)
	if err != nil {
		return nil, err
	}
	req := c.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON).MaxRetries(0)
	for name, values := range params {
		for _, v := range values {
			req = req.Param(name, v)
		}
	}
	body, err := req.Do(ctx).Raw()
	return body, WrapRequest(path, err)
}
