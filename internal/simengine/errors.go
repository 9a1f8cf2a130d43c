package simengine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// maxBody is the most bytes of a request body.
const maxBody = 64 << 20

// apiError is an error in the shape of vLLM's.
type apiError struct {
	status  int
	kind    string
	message string
	param   string // "" is null
}

func (e *apiError) Error() string { return e.message }

// badRequest is an error about a parameter, which as in vLLM stands in the
// message too; "" is none.
func badRequest(param, format string, args ...any) *apiError {
	msg := fmt.Sprintf(format, args...)
	if param != "" {
		msg += " (parameter=" + param + ")"
	}
	return &apiError{http.StatusBadRequest, "BadRequestError", msg, param}
}

// badValue is a badRequest that shows the value.
func badValue(param string, value any, format string, args ...any) *apiError {
	msg := fmt.Sprintf(format, args...) + fmt.Sprintf(" (parameter=%s, value=%v)", param, value)
	return &apiError{http.StatusBadRequest, "BadRequestError", msg, param}
}

func writeError(w http.ResponseWriter, err error) {
	var e *apiError
	var fe *formatError
	switch {
	case errors.As(err, &e):
	case errors.As(err, &fe):
		e = badRequest(fe.param, "%s", fe.msg)
	default:
		e = &apiError{http.StatusInternalServerError, "InternalServerError", err.Error(), ""}
	}
	var param any
	if e.param != "" {
		param = e.param
	}
	writeJSON(w, e.status, map[string]any{"error": map[string]any{"message": e.message, "type": e.kind, "param": param, "code": e.status}})
}

// encode is JSON without HTML escaping and without a final newline.
func encode(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic(err) // our own types always encode
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body := encode(v)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	w.WriteHeader(status)
	w.Write(body)
}

// readBody decodes the JSON body into v.
func readBody(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		var tooBig *http.MaxBytesError
		if errors.As(err, &tooBig) {
			return &apiError{http.StatusRequestEntityTooLarge, "BadRequestError", fmt.Sprintf("the body is larger than %d bytes", maxBody), ""}
		}
		return badRequest("", "reading the body: %v", err)
	}
	if err := json.Unmarshal(body, v); err != nil {
		var typeErr *json.UnmarshalTypeError
		if errors.As(err, &typeErr) {
			return badRequest(typeErr.Field, "%s must not be a JSON %s", typeErr.Field, typeErr.Value)
		}
		return badRequest("", "the body is no JSON: %v", err)
	}
	return nil
}
