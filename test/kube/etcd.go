package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path"

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
	body, err := json.Marshal(struct { // etcd's JSON, where bytes are base64
		Key   []byte `json:"key"`
		Value []byte `json:"value"`
	}{[]byte(path.Join(c.etcdRoot, resource, namespace, name)), value})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL+"/v3/kv/put", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("put into etcd: %s: %.500s", resp.Status, answer)
	}
	return nil
}
