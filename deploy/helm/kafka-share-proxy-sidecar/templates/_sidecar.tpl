{{/* Values of the sidecar: those of the calling chart below the key kafka-share-proxy-sidecar. */}}
{{- define "kafka-share-proxy.sidecar.values" -}}
{{- index .Values "kafka-share-proxy-sidecar" | toYaml -}}
{{- end -}}

{{/* An entry of `initContainers`: put it before all others that need Kafka. */}}
{{- define "kafka-share-proxy.sidecar" -}}
{{- $v := include "kafka-share-proxy.sidecar.values" . | fromYaml -}}
- name: kafka-share-proxy
  image: {{ printf "%s:%s" $v.image.repository (default "0.2.0" $v.image.tag) | quote }}
  imagePullPolicy: {{ $v.image.pullPolicy }}
  restartPolicy: Always
  args: [serve, --config, /etc/kafka-share-proxy/config/settings.yaml]
  {{- if $v.peerSecret }}
  env:
    - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
    - {name: KSP_CLUSTER__PEER__ADVERTISE, value: "[$(POD_IP)]:{{ int $v.peerPort }}"}
  {{- end }}
  ports:
    - {name: ksp-admin, containerPort: {{ int $v.adminPort }}}
    {{- if $v.peerSecret }}
    - {name: ksp-peer, containerPort: {{ int $v.peerPort }}}
    {{- end }}
  # The application starts when this has succeeded: the proxy has reached the cluster.
  startupProbe:
    httpGet: {path: /readyz, port: ksp-admin}
    periodSeconds: 1
    timeoutSeconds: 3
    failureThreshold: 300
  livenessProbe:
    httpGet: {path: /livez, port: ksp-admin}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities: {drop: [ALL]}
    seccompProfile: {type: RuntimeDefault}
  resources: {{- toYaml $v.resources | nindent 4 }}
  volumeMounts:
    - {name: kafka-share-proxy-settings, mountPath: /etc/kafka-share-proxy/config, readOnly: true}
    {{- if $v.peerSecret }}
    - {name: kafka-share-proxy-peer, mountPath: /etc/kafka-share-proxy/peer, readOnly: true}
    {{- end }}
{{- end -}}

{{/* Entries of `volumes`. */}}
{{- define "kafka-share-proxy.sidecar.volumes" -}}
{{- $v := include "kafka-share-proxy.sidecar.values" . | fromYaml -}}
- name: kafka-share-proxy-settings
  configMap: {name: {{ $v.configMap }}}
{{- if $v.peerSecret }}
- name: kafka-share-proxy-peer
  secret: {secretName: {{ $v.peerSecret }}}
{{- end }}
{{- end -}}

{{/* The settings file. */}}
{{- define "kafka-share-proxy.sidecar.settings" -}}
{{- $v := include "kafka-share-proxy.sidecar.values" . | fromYaml -}}
{{- $s := deepCopy $v.settings -}}
{{- if not (default dict $s.upstream).bootstrap }}{{- fail "kafka-share-proxy-sidecar.settings.upstream.bootstrap is missing: HOST:PORT of some brokers" }}{{- end -}}
{{- $_ := set $s "listen" (printf "127.0.0.1:%d" (int $v.port)) -}}
{{- $_ := set $s "admin" (printf "%s:%d" $v.anyAddress (int $v.adminPort)) -}}
{{- $_ := set $s "advertise" (default "localhost" $s.advertise) -}}
{{- $_ := set $s "log_format" (default "json" $s.log_format) -}}
{{- if $v.peerSecret -}}
{{- $peer := dict "listen" (printf "%s:%d" $v.anyAddress (int $v.peerPort)) "secret_file" "/etc/kafka-share-proxy/peer/secret" -}}
{{- $_ := set $s "cluster" (dict "mode" "fleet" "peer" $peer) -}}
{{- else -}}
{{- $_ := set $s "share_groups" (dict "serve" "upstream") -}}
{{- $_ := set $s "commits" (dict "serve" false) -}}
{{- end -}}
{{- toYaml $s -}}
{{- end -}}

{{/* Annotation of the pod: new settings make new pods. */}}
{{- define "kafka-share-proxy.sidecar.checksum" -}}
checksum/kafka-share-proxy: {{ include "kafka-share-proxy.sidecar.settings" . | sha256sum }}
{{- end -}}

{{/* The ConfigMap. */}}
{{- define "kafka-share-proxy.sidecar.configmap" -}}
{{- $v := include "kafka-share-proxy.sidecar.values" . | fromYaml -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $v.configMap }}
  namespace: {{ .Release.Namespace }}
data:
  settings.yaml: |
    {{- include "kafka-share-proxy.sidecar.settings" . | nindent 4 }}
{{- end -}}
