import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.common.utils.Exit;

/**
 * Kafka's administration tools, one after the other in one Java, whose start is most of what each of them costs.
 *
 * <p>It reads lines: the class of a tool and its arguments, with U+001F between them. It answers each by a line
 * "status, bytes printed, bytes of errors" with blanks between them, followed by these bytes. It ends with its input.
 */
public class AdminTools {
    private static final PrintStream ANSWERS = System.out;

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\u001f", -1);
            answer(words[0], Arrays.copyOfRange(words, 1, words.length));
        }
        Runtime.getRuntime().halt(0);
    }

    private static void answer(String tool, String[] arguments) throws Exception {
        ByteArrayOutputStream printed = new ByteArrayOutputStream();
        ByteArrayOutputStream errors = new ByteArrayOutputStream();
        System.setOut(new PrintStream(printed, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        int status = statusOf(Class.forName(tool).getMethod("main", String[].class), arguments);
        System.out.flush();
        System.err.flush();
        byte[] text = printed.toByteArray();
        byte[] complaints = errors.toByteArray();
        ANSWERS.println(status + " " + text.length + " " + complaints.length);
        ANSWERS.write(text);
        ANSWERS.write(complaints);
        ANSWERS.flush();
    }

    /** The thread of a tool that exits never goes on, as in a Java of its own. */
    private static int statusOf(Method main, String[] arguments) {
        CompletableFuture<Integer> status = new CompletableFuture<>();
        Exit.Procedure exit = (code, message) -> {
            status.complete(code);
            new CompletableFuture<Void>().join();
        };
        Exit.setExitProcedure(exit);
        Exit.setHaltProcedure(exit);
        Thread thread = new Thread(() -> status.complete(run(main, arguments)), "main");
        thread.setDaemon(true);
        thread.start();
        return status.join();
    }

    private static int run(Method main, String[] arguments) {
        try {
            main.invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            System.err.print("Exception in thread \"main\" ");
            thrown.getCause().printStackTrace();
            return 1;
        } catch (IllegalAccessException impossible) {
            throw new AssertionError(impossible);
        }
    }
}
