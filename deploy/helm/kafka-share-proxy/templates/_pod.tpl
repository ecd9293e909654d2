{{/* The pod template of the Deployment and of the StatefulSet. */}}
{{- define "kafka-share-proxy.pod" -}}
{{- $fullname := include "kafka-share-proxy.fullname" . -}}
{{- $ports := include "kafka-share-proxy.ports" . | fromYaml -}}
{{- $drain := ceil (default 30 .Values.settings.drain_s) | int -}}
{{- if and (hasKey .Values.settings "drain_s") (not (kindIs "invalid" .Values.settings.drain_s)) }}{{- $drain = ceil .Values.settings.drain_s | int }}{{- end -}}
{{- $tls := include "kafka-share-proxy.tlsSecretName" . -}}
{{- $peerTls := include "kafka-share-proxy.peerTlsSecretName" . -}}
metadata:
  labels:
    {{- include "kafka-share-proxy.selectorLabels" . | nindent 4 }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  {{- $annotations := dict }}
  {{- if .Values.restartOnSettingsChange }}
  {{- $annotations = dict "checksum/settings" (include "kafka-share-proxy.settings" . | sha256sum) }}
  {{- end }}
  {{- with merge $annotations .Values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "kafka-share-proxy.serviceAccountName" . }}
  automountServiceAccountToken: false
  # Variables of a Service named ksp would be read as settings.
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ add (int .Values.preStopSeconds) $drain (int .Values.terminationMarginSeconds) }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 10001
    runAsGroup: 10001
    fsGroup: 10001
    seccompProfile: {type: RuntimeDefault}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    {{- if .Values.topologySpreadConstraints }}
    {{- toYaml .Values.topologySpreadConstraints | nindent 4 }}
    {{- else }}
    {{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "kafka-share-proxy.selectorLabels" $ | nindent 10 }}
    {{- end }}
    {{- end }}
  containers:
    - name: proxy
      image: {{ printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve, --config, /etc/kafka-share-proxy/config/settings.yaml]
      {{- $env := list }}
      {{- $env = append $env (dict "name" "POD_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.name"))) }}
      {{- if eq .Values.mode "single" }}
      {{- $env = append $env (dict "name" "KSP_CLUSTER__NAME" "value" "$(POD_NAME)") }}
      {{- else }}
      {{- $env = append $env (dict "name" "KSP_CLUSTER__PEER__ADVERTISE" "value" (printf "$(POD_NAME).%s:%d" (include "kafka-share-proxy.podsDomain" .) (int $ports.peer))) }}
      {{- end }}
      {{- range .Values.secretEnv }}
      {{- $env = append $env (dict "name" .name "valueFrom" (dict "secretKeyRef" (dict "name" .secret "key" .key))) }}
      {{- end }}
      {{- with concat $env .Values.extraEnv }}
      env: {{- toYaml . | nindent 8 }}
      {{- end }}
      ports:
        - {name: bootstrap, containerPort: {{ $ports.bootstrap }}}
        - {name: admin, containerPort: {{ $ports.admin }}}
        {{- if $ports.peer }}
        - {name: peer, containerPort: {{ $ports.peer }}}
        {{- end }}
      startupProbe:
        httpGet: {path: /livez, port: admin}
        {{- toYaml .Values.probes.startup | nindent 8 }}
      livenessProbe:
        httpGet: {path: /livez, port: admin}
        {{- toYaml .Values.probes.liveness | nindent 8 }}
      readinessProbe:
        httpGet: {path: /readyz, port: admin}
        {{- toYaml .Values.probes.readiness | nindent 8 }}
      {{- if gt (int .Values.preStopSeconds) 0 }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ int .Values.preStopSeconds }}}
      {{- end }}
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: settings, mountPath: /etc/kafka-share-proxy/config, readOnly: true}
        {{- if eq .Values.mode "fleet" }}
        - {name: peer, mountPath: /etc/kafka-share-proxy/peer, readOnly: true}
        {{- end }}
        {{- if $tls }}
        - {name: tls, mountPath: /etc/kafka-share-proxy/tls, readOnly: true}
        {{- end }}
        {{- if $peerTls }}
        - {name: peer-tls, mountPath: /etc/kafka-share-proxy/peer-tls, readOnly: true}
        {{- end }}
        {{- range .Values.secretFiles }}
        - {name: {{ printf "secret-%s" . | trunc 63 }}, mountPath: {{ printf "/etc/kafka-share-proxy/secrets/%s" . }}, readOnly: true}
        {{- end }}
        {{- with .Values.extraVolumeMounts }}{{ toYaml . | nindent 8 }}{{ end }}
  volumes:
    - name: settings
      configMap: {name: {{ $fullname }}}
    {{- if eq .Values.mode "fleet" }}
    - name: peer
      secret: {secretName: {{ include "kafka-share-proxy.peerSecretName" . }}, defaultMode: 288}
    {{- end }}
    {{- if $tls }}
    - name: tls
      secret: {secretName: {{ $tls }}, defaultMode: 288}
    {{- end }}
    {{- if $peerTls }}
    - name: peer-tls
      secret: {secretName: {{ $peerTls }}, defaultMode: 288}
    {{- end }}
    {{- range .Values.secretFiles }}
    - name: {{ printf "secret-%s" . | trunc 63 }}
      secret: {secretName: {{ . }}, defaultMode: 288}
    {{- end }}
    {{- with .Values.extraVolumes }}{{ toYaml . | nindent 4 }}{{ end }}
{{- end -}}
