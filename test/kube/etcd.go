package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path"
	"path/filepath"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// putStored writes an object of a built-in kind into etcd as the API server
// stores it: the protobuf encoding in its k8s\0 envelope, at
// <prefix>/<resource>/<namespace>/<name>. The API server sees it as a change of
// its own, with a revision of its own: objects of one etcd transaction would
// share a resourceVersion, which real ones never do. No admission, defaulting
// or validation takes place.
func (c *ControlPlane) putStored(ctx context.Context, gv schema.GroupVersion, resource, namespace, name string, object runtime.Object) error {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		panic("client-go has no protobuf serializer")
	}
	value, err := runtime.Encode(scheme.Codecs.EncoderForVersion(info.Serializer, gv), object)
	if err != nil {
		return fmt.Errorf("encode %s/%s: %w", namespace, name, err)
	}
	_, err = c.askEtcd(ctx, "/v3/kv/put", struct { // etcd's JSON, where bytes are base64
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}{[]byte(path.Join(c.etcdRoot, resource, namespace, name)), value})
	return err
}

// Compact has etcd forget all but the newest revision: a watch that an API server does not have in
// its own cache has to start again.
func (c *ControlPlane) Compact(ctx context.Context) error {
	answer, err := c.askEtcd(ctx, "/v3/maintenance/status", struct{}{})
	if err != nil {
		return err
	}
	var status struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := json.Unmarshal(answer, &status); err != nil {
		return fmt.Errorf("etcd's status: %w", err)
	}
	_, err = c.askEtcd(ctx, "/v3/kv/compaction", map[string]any{"revision": status.Header.Revision, "physical": true})
	return err
}

// SaveEtcd copies the data of an etcd of its own, which must not run, into a directory that is not there.
func (c *ControlPlane) SaveEtcd(to string) error {
	return os.CopyFS(to, os.DirFS(filepath.Join(c.Dir, "etcd")))
}

// RestoreEtcd replaces the data of an etcd of its own, which must not run, by what SaveEtcd copied.
func (c *ControlPlane) RestoreEtcd(from string) error {
	data := filepath.Join(c.Dir, "etcd")
	if err := os.RemoveAll(data); err != nil {
		return err
	}
	return os.CopyFS(data, os.DirFS(from))
}

// askEtcd posts a request to etcd's JSON gateway.
func (c *ControlPlane) askEtcd(ctx context.Context, path string, request any) ([]byte, error) {
	body, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("etcd: %s: %s: %.500s", path, resp.Status, answer)
	}
	return answer, nil
}
