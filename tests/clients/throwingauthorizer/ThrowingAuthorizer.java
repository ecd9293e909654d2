import java.util.List;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/** Judges as Kafka's own authorizer does, but of what is named throws-... it cannot say anything to user bob. */
public class ThrowingAuthorizer extends StandardAuthorizer {
    @Override
    public List<AuthorizationResult> authorize(AuthorizableRequestContext context, List<Action> actions) {
        for (Action action : actions) {
            boolean isConcerned = action.resourcePattern().name().startsWith("throws-");
            if (isConcerned && context.principal().getName().equals("bob")) {
                throw new IllegalStateException("the authorizer cannot reach what it needs to judge");
            }
        }
        return super.authorize(context, actions);
    }
}
